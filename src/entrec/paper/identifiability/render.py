"""From the cells of a folder to the tables, beside the paper's numbers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from statistics import fmean, stdev
from string import ascii_lowercase
from typing import Any, get_args

from entrec.files import appearing
from entrec.identifiability.content_style import Isolation
from entrec.paper.identifiability.figure import curves
from entrec.paper.identifiability.grid import MAY_DIFFER, Cell, Scale, cells, kept
from entrec.paper.identifiability.published import COLUMNS, NAMES, ROWS, SCORES, TableName

NOT_RUN = "not run"
_CAPTION = (
    "Each panel's title has the latents' space and law, and below it the projections' space and the model; a line is a seed, "
    "as long as its training was."
)
_Found = Mapping[Cell, Any]
_Way = tuple[Any, ...]  # values of what may differ between cells


def render(out: Path, tables: Sequence[TableName], scale: Scale, command: Sequence[str], chosen: Sequence[str] = ()) -> Path:
    """Write table.md, and a figure for each table with a curve, from all cells that the folder holds.

    Args:
        out: the folder.
        tables: to be shown even if nothing of them has been run.
        scale: of the cells.
        command: that makes cells like these, word by word, but for what may differ between them.
        chosen: further words: which tables and rows it was called with last.
    """
    found = kept(out, scale)
    letters = _letters(found)
    lines = ["# Identifiability: what the encoder finds of the latents", "", *_commands(found, command, chosen), ""]
    lines += _protocol(found, scale, letters)
    for table in get_args(TableName):
        own = {cell: x for cell, x in found.items() if cell.table == table}
        if not own and table not in tables:
            continue
        lines += _isolation(own, scale, letters) if table == "content-style" else _published(table, own, letters)
        if own and table != "content-style":
            curves(own, table, out / f"{table}-curves")
            lines += [f"![Score against steps, for each row of the table]({table}-curves.png)", "", _CAPTION, ""]
    path = out / "table.md"
    with appearing(path) as unfinished:
        unfinished.write_text("\n".join(lines))
    return path


def _way(x: Any) -> _Way:
    """How a cell was trained, of what may differ between those of one table."""
    return tuple(getattr(x.setting, key) for key in MAY_DIFFER)


def _ways(found: _Found) -> dict[_Way, list[str]]:
    """The ways in which cells were trained, in the order of the first of each, with the names of all."""
    ways: dict[_Way, list[str]] = {}
    for cell, x in found.items():
        ways.setdefault(_way(x), []).append(cell.name.rpartition("-seed")[0])
    return dict(sorted(ways.items(), key=lambda item: item[1]))


def _letters(found: _Found) -> dict[_Way, str]:
    """By which a cell says how it was trained, where not all were trained alike."""
    ways = _ways(found)
    names = chain(ascii_lowercase, map("".join, product(ascii_lowercase, repeat=2)))
    return dict(zip(ways, names, strict=False)) if len(ways) > 1 else {}


def _commands(found: _Found, command: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """What makes the cells again, a line for each way in which they were trained; without any, what would make some."""
    lines, letters = [], _letters(found)
    for way, names in _ways(found).items():
        which = [f"--only '{name}-*'" for name in dict.fromkeys(names)] if letters else chosen
        how = [
            f"--{key} {value:g}" if isinstance(value, float) else f"--{key} {value}"
            for key, value in zip(MAY_DIFFER, way, strict=True)
        ]
        lines.append(" ".join(["   ", *command, *how, *which, *([f" # {letters[way]}"] if letters else [])]))
    return lines or [" ".join(["   ", *command, *chosen])]


def _protocol(found: _Found, scale: Scale, letters: Mapping[_Way, str]) -> list[str]:
    """How, where, and what went wrong."""
    ours = cells(["affine"], [1], 1, scale)[0].setting
    told = f"{ours.dim} latents, batch {ours.batch}, encoder {ours.width} times as wide, Adam, mixing the best conditioned of "
    told += f"{ours.draws} matrices. "
    reduced = any(key not in MAY_DIFFER for key in scale.given())
    if reduced:
        told += "**Reduced size**: the paper's numbers are of another protocol."
    else:
        told += "The paper's protocol has a constant rate of 0.0001 and 300,000 steps."
    told += " h multiplies log q, in both terms of ER but where the entropy's kernel has its own."
    told += " The letter behind a score is that of the command above which made it." if letters else ""
    lines = [told, ""]
    if found:
        results = list(found.values())
        precisions = " and ".join(sorted({x.setting.precision for x in results}))
        where = f"{', '.join(sorted({x.device for x in results}))}; precision {precisions}"
        seeds, minutes = sorted({x.setting.seed for x in results}), sum(x.seconds for x in results) / 60
        told = f"{where}; seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}."
        lines += [f"{len(found)} cells, {minutes:.1f} minutes of training, those side by side added up: {told}", ""]
    lost = [
        f"{cell.name} (by step {x.diverged}, precision {x.setting.precision})"
        for cell, x in found.items()
        if x.diverged is not None
    ]
    return [*lines, f"Diverged: {', '.join(lost)}.", ""] if lost else lines


def _published(table: TableName, found: _Found, letters: Mapping[_Way, str]) -> list[str]:
    lines = [
        f"## {table.capitalize()}: {SCORES[table]} in percent, ours (the paper's; the difference)",
        "",
        "| row | space | marginal | conditional | projections | model | " + " | ".join(NAMES.values()) + " |",
        "|---:|---|---|---|---|---|" + "---:|" * len(COLUMNS),
    ]
    for number, row in enumerate(ROWS[table], 1):
        of_row = {cell: x for cell, x in found.items() if cell.row == number}
        shown = []
        for column, paper, mark in zip(COLUMNS, row.scores, row.marks, strict=True):
            results = [x for cell, x in of_row.items() if cell.column == column]
            scores = [100 * (x.r2 if table == "affine" else x.mcc) for x in results]
            shown.append(_beside(scores, paper, mark) + _lettered(results, letters))
        words = (row.space, row.marginal, row.conditional, row.output, row.model)
        lines.append(f"| {number} | {' | '.join((*words, *shown))} |")
    return [*lines, "", r"\* measured by the paper's authors themselves; † a training that they call unstable.", ""]


def _beside(scores: Sequence[float], paper: float, mark: str) -> str:
    """Our scores of a cell beside the paper's."""
    mark = mark.replace("*", r"\*")
    ours = _mean(scores, 2)
    fine = [x for x in scores if not math.isnan(x)]
    return f"{ours} ({paper:.2f}{mark}; {fmean(fine) - paper:+.2f})" if fine else f"{ours} ({paper:.2f}{mark})"


def _mean(scores: Sequence[float], digits: int) -> str:
    """Over seeds, with their standard deviation; those that diverged are counted, not averaged."""
    if not scores:
        return NOT_RUN
    fine = [x for x in scores if not math.isnan(x)]
    lost = f"diverged in {len(scores) - len(fine)} of {len(scores)}" if len(fine) < len(scores) else ""
    spread = f" ± {stdev(fine):.{digits}f}" if len(fine) > 1 else ""
    return ", ".join(x for x in (f"{fmean(fine):.{digits}f}{spread}" if fine else "", lost) if x)


def _lettered(results: Iterable[Any], letters: Mapping[_Way, str]) -> str:
    """How a cell's seeds were trained, by letters."""
    found = sorted({letters[_way(x)] for x in results if letters})
    return f" {', '.join(found)}" if found else ""


_PARTS: dict[str, Callable[[Isolation], float]] = {
    "content, linear": lambda x: x.content[0],
    "content, kernel": lambda x: x.content[1],
    "style, linear": lambda x: x.style[0],
    "style, kernel": lambda x: x.style[1],
}


def _isolation(found: _Found, scale: Scale, letters: Mapping[_Way, str]) -> list[str]:
    lines = [
        "## Content and style: R2 in percent",
        "",
        "Views share the content; the bound should keep it and drop the style. q is proportional to exp(-h |z2 - z1|^2), the "
        "theorem's where h = 1, and so is the entropy's kernel with its own h. Linear regression, then kernel ridge.",
        "",
        f"| row | content | style | outputs | h of q | of the kernel | {' | '.join(_PARTS)} |",
        "|---:|---:|---:|---:|---:|---:|" + "---:|" * len(_PARTS),
    ]
    for cell in cells(["content-style"], (), 1, scale):
        setting: Any = cell.setting
        of_row = {other: x for other, x in found.items() if other.row == cell.row}
        shown = [_mean([100 * part(x) for x in of_row.values()], 1) for part in _PARTS.values()]
        sizes = f"{setting.content} | {setting.style} | {setting.outputs or setting.content} | {setting.bandwidth**-2:g}"
        sizes += f" | {(setting.kernel or setting.bandwidth) ** -2:g}"
        shown[-1] += _lettered(of_row.values(), letters)
        lines.append(f"| {cell.row} | {sizes} | {' | '.join(shown)} |")
    return [*lines, ""]
