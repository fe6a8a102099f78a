"""Why a run failed, in a line that can stand in a table."""

import re
from pathlib import Path

LONGEST = 160  # characters: two lines of a table's cell

# In quotes, where it may hold spaces; and bare, where it must not go on from a word (and/or), a URL or another path.
_QUOTED = re.compile(r"""(?P<quote>['"])~?/(?:[^'"]*/)?(?P<last>[^'"/]+)/?(?P=quote)""")
_BARE = re.compile(r"""(?<![\w.:/~*-])~?/(?:[^\s/'":;,()<>]+/)*(?P<last>[^\s/'":;,()<>]+)/?""")


def in_a_line(text: str, folder: Path) -> str:
    """The text, cut to a line, and without this machine's paths, which tell nobody anything who reads the table elsewhere.

    Args:
        text: of any length.
        folder: the run's own: paths in it are told from there on, of others only the last part.
    """
    line = " ".join(text.split()).replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")
    line = _BARE.sub(r"\g<last>", _QUOTED.sub(r"\g<quote>\g<last>\g<quote>", line))
    return line if len(line) <= LONGEST else line[: LONGEST - 3].rstrip() + "..."
