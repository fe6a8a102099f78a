"""A chart of lines as an SVG whose text is text: no name is ever read as a formula, and it stays legible on a phone."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from entrec.report.style import Look, stroke

Kind = Literal["plain", "percent", "share"]
_WIDTH, _HEIGHT = 320, 200
_TOP, _RIGHT, _BOTTOM = 8, 10, 34
_LETTER = 6.6  # of the width of a digit, at the most, with some room


class Line(NamedTuple):
    """A curve.

    Args:
        ident: of its group in the page.
        said: of whom it is.
        points: epochs and values.
        look: its colour and dash.
        width: of the line.
    """

    ident: str
    said: str
    points: Sequence[tuple[float, float]]
    look: Look
    width: float = 1.8


class Frame(NamedTuple):
    """Where the numbers of two axes, from `low` to `high` each, are drawn."""

    left: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, x: float) -> float:
        """From the left."""
        low, high = self.x
        return self.left + (x - low) / (high - low) * (_WIDTH - _RIGHT - self.left)

    def down(self, y: float) -> float:
        """From the top."""
        low, high = self.y
        return _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)


def chart(title: str, lines: Sequence[Line], kind: Kind) -> str:
    """A figure with its title; an axis in percent ends at 100, one of shares runs from 0 to 1."""
    points = [point for line in lines for point in line.points if math.isfinite(point[1])]
    if not points:
        return ""
    epochs, values = zip(*points, strict=True)
    alone = 0.5 if min(epochs) == max(epochs) else 0.0  # of an epoch, to either side
    x, y = (min(epochs) - alone, max(epochs) + alone), span(values, kind)
    rows = ticks(*y)
    names = labels(rows)
    frame = Frame(12 + _LETTER * max(map(len, names)), x, y)
    drawn = "".join(_curve(line, frame) for line in lines)
    said = escape(f"{title}, over epochs", quote=True)
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{said}'>"
        f"{_rows(frame, zip(rows, names, strict=True))}{_columns(frame)}{drawn}</svg></figure>"
    )


def span(values: Sequence[float], kind: Kind) -> tuple[float, float]:
    """From where to where an axis runs.

    >>> span([91.0, 97.0], "percent"), span([0.2, 0.4], "share"), span([2.0], "plain")
    ((90.7, 100.0), (0.0, 1.0), (1.9, 2.1))
    """
    low, high = min(values), max(values)
    if kind == "share":
        return min(0.0, low), max(1.0, high)
    # A twentieth to either side: of the way between the two, or where that is next to nothing, of the number itself.
    way = high - low
    room = 0.05 * (way if way > 1e-6 * abs(high) else abs(high) or 1.0)
    return (max(0.0, low - room), 100.0) if kind == "percent" else (low - room, high + room)


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers between two others, two to six of them.

    >>> [round(x, 9) for x in ticks(0.0, 1.0)], ticks(0.5, 1.5, whole=True), ticks(1, 300, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [1], [100, 200, 300])
    """
    wanted = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(wanted))
    step = next(size * n for n in (1, 2, 5, 10) if size * n >= wanted * 0.999)
    if whole:
        step = max(1, round(step))
    return [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def labels(values: Sequence[float]) -> list[str]:
    """Numbers in full, with as many decimals as tell them apart: nothing is to be added to them."""
    if max(map(abs, values)) >= 1e5:
        return [f"{value:.3g}" for value in values]
    gap = min((b - a for a, b in pairwise(values)), default=1.0)
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    return [f"{value:.{decimals}f}" for value in values]


def _rows(frame: Frame, named: Iterator[tuple[float, str]]) -> str:
    found = []
    for value, name in named:
        y = frame.down(value)
        found.append(f"<path d='M{frame.left:.1f} {y:.1f}H{_WIDTH - _RIGHT}' stroke='#ddd'/>")
        found.append(f"<text x='{frame.left - 5:.1f}' y='{y + 4:.1f}' text-anchor='end'>{name}</text>")
    return "".join(found)


def _columns(frame: Frame) -> str:
    bottom = _HEIGHT - _BOTTOM
    found = [f"<path d='M{frame.left:.1f} {_TOP}V{bottom}H{_WIDTH - _RIGHT}' fill='none' stroke='#444'/>"]
    for value in ticks(*frame.x, whole=True):
        x = frame.across(value)
        found.append(f"<path d='M{x:.1f} {bottom}v4' stroke='#444'/>")
        found.append(f"<text x='{x:.1f}' y='{bottom + 16}' text-anchor='middle'>{value:.0f}</text>")
    middle = (frame.left + _WIDTH - _RIGHT) / 2
    return "".join(found) + f"<text x='{middle:.1f}' y='{_HEIGHT - 4}' text-anchor='middle'>epoch</text>"


def _curve(line: Line, frame: Frame) -> str:
    """A line through its points, broken where there is no number; a point between two breaks is a dot."""
    pieces = []
    for finite, run in groupby(line.points, key=lambda point: math.isfinite(point[1])):
        places = [f"{frame.across(x):.1f} {frame.down(y):.1f}" for x, y in run] if finite else []
        if len(places) == 1:
            x, y = places[0].split()
            pieces.append(f"<circle cx='{x}' cy='{y}' r='3' fill='{line.look.colour}'/>")
        elif places:
            pieces.append(f"<path d='M{'L'.join(places)}' {stroke(line.look, line.width)}/>")
    return f"<g id='{line.ident}'><title>{escape(line.said)}</title>{''.join(pieces)}</g>"
