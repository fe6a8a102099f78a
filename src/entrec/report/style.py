"""How the page looks, and how runs and classes are told apart on it."""

from html import escape
from typing import NamedTuple

# Okabe and Ito's colours, which everyone can tell apart; for lines, those that stand out from white (3 to 1 or more).
_LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
_POINTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
# Dashes and shapes recur after another number than colours do: 5 x 6 runs and 8 x 5 classes have a look of their own.
_DASHES = ("", "7 3", "7 3 1.5 3", "1.5 2.5", "13 3", "7 3 1.5 3 1.5 3")
_SHAPES = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-2.6-2.6h5.2v5.2h-5.2z",
    "m0-3.6l3.3 5.7h-6.6z",
    "m0-3.8l3.4 3.8l-3.4 3.8l-3.4-3.8z",
    "m0 3.6l-3.3-5.7h6.6z",
)

PAGE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a;
overflow-wrap: break-word; } h3 { margin-bottom: .3rem; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .8rem; text-align: right; vertical-align: top; }
thead th { border-bottom: 2px solid #444; font-weight: 600; } tbody th, tbody td { border-bottom: 1px solid #ddd; }
th:first-child { text-align: left; } tbody th { font-weight: 400; } th small { display: block; color: #555; }
.small { color: #555; font-size: .9rem; } .wide { overflow-x: auto; }
.grid { display: grid; gap: 1.2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }
.pairs { display: grid; gap: 1.2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 37rem), 1fr)); }
figure { margin: 0; } figcaption { font-weight: 600; font-size: .95rem; }
figure svg { display: block; width: 100%; height: auto; } figure text { font: 11px system-ui, sans-serif; fill: #333; }
.runs { display: grid; gap: .2rem .3rem; grid-template-columns: repeat(auto-fill, 1.4rem minmax(min(80%, 15rem), 1fr)); }
.runs input { margin: .35rem 0 0; } .runs .curves { grid-column: 1 / -1; margin-top: .8rem; }
.swatch { vertical-align: middle; margin-right: .4rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; list-style: none; margin: .4rem 0; padding: 0; font-size: .9rem; }
.legend li, .runs label { overflow-wrap: anywhere; }
.verdict { border-left: .4rem solid; padding: .1rem 1rem; margin: 1rem 0; } .verdict p { margin: .3rem 0; }
.verdict h3 { margin: .2rem 0; } .strip { display: flex; gap: .25rem; margin: .25rem 0; }
.strip img { flex: 0 1 64px; min-width: 0; aspect-ratio: 1; image-rendering: pixelated; }
.strip .query { margin-right: .6rem; outline: 2px solid; }
@media (max-width: 44rem) { .cards, .cards tbody, .cards tr, .cards tbody th { display: block; } .cards thead { display: none; }
.cards tr { margin-bottom: 1rem; } .cards tbody th { font-weight: 600; border-bottom: 2px solid #444; padding: .3rem 0; }
.cards td { display: flex; justify-content: space-between; gap: 1rem; padding: .2rem 0;
overflow-wrap: anywhere; }
.cards td::before { content: attr(data-label); color: #555; text-align: left; } }
"""


class Look(NamedTuple):
    """Of a run's curves: a colour, and a dash as SVG writes it, which is empty for a line without gaps."""

    colour: str
    dash: str


def look_of(run: int) -> Look:
    """The look of a run by its number."""
    return Look(_LINES[run % len(_LINES)], _DASHES[run % len(_DASHES)])


def stroke(look: Look, width: float = 1.8) -> str:
    """A look as attributes of an SVG's line."""
    dash = f" stroke-dasharray='{look.dash}'" if look.dash else ""
    return f"fill='none' stroke='{look.colour}' stroke-width='{width}'{dash}"


def line_swatch(run: int) -> str:
    """A piece of a run's curve, for a legend."""
    return (
        "<svg class='swatch' width='40' height='10' viewBox='0 0 40 10' aria-hidden='true'>"
        f"<path d='M0 5H40' {stroke(look_of(run), 2.4)}/></svg>"
    )


def mark(group: int) -> str:
    """The outline of a class's points, to follow upon a move to where a point is."""
    return _SHAPES[group % len(_SHAPES)]


def fill(group: int) -> str:
    """The colour of a class's points; a dark edge makes light ones stand out from white."""
    return f"fill='{_POINTS[group % len(_POINTS)]}' fill-opacity='.8' stroke='#333' stroke-width='.4'"


def legend(groups: dict[int, str]) -> str:
    """The names of classes, each beside one of its points; a long list is folded."""
    items = "".join(
        f"<li><svg class='swatch' width='14' height='14' viewBox='-5 -5 10 10' aria-hidden='true'>"
        f"<path d='M0 0{mark(number)}' {fill(number)}/></svg>{escape(name)}</li>"
        for number, name in groups.items()
    )
    names = f"<ul class='legend'>{items}</ul>"
    return names if len(groups) <= 20 else f"<details><summary>{len(groups)} classes</summary>{names}</details>"
