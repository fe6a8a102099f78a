"""What the lens said of runs: in words, with the numbers that show it, and as it changed."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

from entrec.report.known import Known, whereof

_COLOURS = {"healthy": "#00664b", **dict.fromkeys(("early", "saturated", "weak"), "#7a5c00")}  # on white, dark enough to read
_FAILED = "#a32c00"


def verdicts(runs: Sequence[Known]) -> str:
    """A part of the page for each run that the lens looked at."""
    found = "".join(_verdict(run) for run in runs if run.verdicts or run.numbers.get("verdict"))
    where = f"<p class='small'>Said without labels, of the student's projections ({whereof(runs)}).</p>"
    return f"<h2>What the lens saw</h2>{where}{found}" if found else ""


def _verdict(run: Known) -> str:
    """The title, the numbers, what helps, and the history; a run before its end, or of an older version, has but a name."""
    name = str(run.numbers.get("verdict") or run.verdicts[-1][1])
    told: Any = run.numbers.get("diagnosis")
    told = told if isinstance(told, dict) else {}
    title = str(told.get("title") or name.capitalize())
    because = "".join(f"<p>{escape(str(text))}</p>" for text in told.get("because") or ())
    remedies = "".join(f"<li>{escape(str(text))}</li>" for text in told.get("remedies") or ())
    helps = f"<p>What usually helps:</p><ul>{remedies}</ul>" if remedies else ""
    history = f"<p class='small'>As it changed: {escape(in_turns(run.verdicts))}.</p>" if run.verdicts else ""
    colour = _COLOURS.get(name, _FAILED)
    so_far = "" if run.ended else f" ({run.so_far})"
    return (
        f"<section class='verdict' style='border-color: {colour}'><h3>{escape(run.name + so_far)}</h3>"
        f"<p style='color: {colour}'><b>{escape(title)}</b></p>{because}{helps}{history}</section>"
    )


def in_turns(looks: Sequence[tuple[int, str]]) -> str:
    """Verdicts in a row as words: each once, with the epochs after which it was seen.

    >>> in_turns([(1, "collapsed"), (2, "healthy"), (3, "healthy")])
    'collapsed after epoch 1, healthy after epochs 2 to 3'
    """
    turns = [(name, [epochs for epochs, _ in run]) for name, run in groupby(looks, key=lambda look: look[1])]
    when = (f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}" for _, epochs in turns)
    return ", ".join(f"{name} after {text}" for (name, _), text in zip(turns, when, strict=True))
