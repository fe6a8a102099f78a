"""The list of a large folder's images, kept from one start to the next.

It is believed as long as every folder in it has the stamp that it had before it was read. Adding, removing or renaming a file
changes the stamp of the folder it lies in, so that one question per folder is enough, and none per file. On a disk where that
does not hold (some object stores mounted as one), delete `~/.cache/entrec/index`, which may be done at any time.
"""

import contextlib
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from entrec.data.files import EXTENSIONS
from entrec.files import appearing

LARGE = 10_000  # images; a folder of fewer is soon listed, and leaves nothing behind
_RULES = f"entrec index 1: {' '.join(EXTENSIONS)}"  # another number whenever other names are listed, or written otherwise
_REST_NS = 2 * 10**9  # the coarsest clock of a file system in use (FAT)

Stamp = list[int] | None


def stamp(path: str) -> Stamp:
    """The number of a folder and the times of its last change in nanoseconds; `None` where there is no folder.

    The number tells where a link leads. Of the times, `ctime` cannot be set back, as programs that unpack or copy folders do
    with `mtime`. The device is left out: the same network disk has another one on the next machine.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns, found.st_ctime_ns] if stat.S_ISDIR(found.st_mode) else None


def read(root: str) -> list[str] | None:
    """The images of a folder, as they were given to `write`; `None` without an index of it as it is now.

    Args:
        root: full path of the folder, without links, and with a separator at its end.
    """
    try:
        rules, stamps, *names = os.fsdecode(zlib.decompress(_path(root).read_bytes())).split("\0")
        if rules != _RULES:
            return None
        current = all(stamp(root + inside) == known for inside, known in json.loads(stamps).items())
    except (OSError, RuntimeError, ValueError, zlib.error):  # no index, no home folder, or a file that is no index
        return None
    return names if current else None


def write(root: str, names: Sequence[str], stamps: Mapping[str, Stamp], began: int) -> None:
    """Keep the list of a large folder's images, if that can be done.

    Args:
        root: the folder, as for `read`.
        names: of the images, in order.
        stamps: by path inside the folder, of everything whose change may change the list; each taken before it was read.
        began: when the listing began, in nanoseconds since 1970.
    """
    if len(names) < LARGE or not _at_rest(stamps, began):
        return
    text = "\0".join((_RULES, json.dumps(stamps), *names))  # no name holds this sign
    with contextlib.suppress(OSError, RuntimeError):  # a home folder may be read-only, full, or not there at all
        path = _path(root)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # names may tell what the images' own folder hides
        with appearing(path) as unfinished:
            unfinished.write_bytes(zlib.compress(os.fsencode(text), 1))  # with a checksum, which reading verifies


def _at_rest(stamps: Mapping[str, Stamp], began: int) -> bool:
    """Whether every later change gives a folder another stamp.

    Clocks of file systems tick, some every two seconds. A folder that changed within the tick in which it was read may change
    once more in it, unseen: its times stay what they were (git knows this as the racy index). A time of 0 is that of a disk
    which keeps none.
    """
    return all(0 < max(times) < began - _REST_NS for _, *times in filter(None, stamps.values()))


def _path(root: str) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return Path.home() / ".cache" / "entrec" / "index" / name
