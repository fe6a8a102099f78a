"""From the cells of a folder to the tables, beside the paper's numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

from entrec.files import appearing
from entrec.identifiability.content_style import Isolation
from entrec.paper.identifiability.figure import curves
from entrec.paper.identifiability.grid import MAY_DIFFER, Cell, Scale, cells, kept
from entrec.paper.identifiability.published import COLUMNS, NAMES, ROWS, SCORES, TableName

NOT_RUN = "not run"
_Found = Mapping[Cell, Any]


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
    lines = ["# Identifiability: what the encoder finds of the latents", "", *_commands(found, command, chosen), ""]
    lines += _protocol(found, scale)
    for table in get_args(TableName):
        own = {cell: x for cell, x in found.items() if cell.table == table}
        if not own and table not in tables:
            continue
        lines += _isolation(own, scale) if table == "content-style" else _published(table, own)
        if own and table != "content-style":
            curves(own, table, out / f"{table}-curves")
            lines += [f"![Score against steps, for each row of the table]({table}-curves.png)", ""]
    path = out / "table.md"
    with appearing(path) as unfinished:
        unfinished.write_text("\n".join(lines))
    return path


def _commands(found: _Found, command: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """What makes the cells again, a line for each way in which they were trained; without any, what would make some."""
    ways: dict[tuple[Any, ...], list[str]] = {}
    for cell, x in found.items():
        ways.setdefault(tuple(getattr(x.setting, key) for key in MAY_DIFFER), []).append(cell.name.rpartition("-seed")[0])
    lines = []
    for way, names in sorted(ways.items(), key=lambda item: item[1]):
        which = chosen if len(ways) == 1 else [f"--only '{name}-*'" for name in dict.fromkeys(names)]
        how = [
            f"--{key} {value:g}" if isinstance(value, float) else f"--{key} {value}"
            for key, value in zip(MAY_DIFFER, way, strict=True)
        ]
        lines.append(" ".join(["   ", *command, *how, *which]))
    return lines or [" ".join(["   ", *command, *chosen])]


def _protocol(found: _Found, scale: Scale) -> list[str]:
    """How, where, and what went wrong."""
    ours = cells(["affine"], [1], 1, scale)[0].setting
    told = f"{ours.dim} latents, batch {ours.batch}, encoder {ours.width} times as wide, Adam, mixing the best conditioned of "
    told += f"{ours.draws} matrices. "
    reduced = any(key not in MAY_DIFFER for key in scale.given())
    if reduced:
        told += "**Reduced size**: the paper's numbers are of another protocol."
    else:
        told += "The paper's protocol has a constant rate of 0.0001 and 300,000 steps."
    told += " h multiplies log q, in both terms of ER."
    lines = [told, ""]
    if found:
        results = list(found.values())
        precisions = " and ".join(sorted({x.setting.precision for x in results}))
        where = f"{', '.join(sorted({x.device for x in results}))}; precision {precisions}"
        seeds = sorted({x.setting.seed for x in results})
        lines += [
            f"{len(found)} cells in {sum(x.seconds for x in results) / 60:.1f} minutes of training: {where}; seeds {seeds}.",
            "",
        ]
    lost = [
        f"{cell.name} (by step {x.diverged}, precision {x.setting.precision})"
        for cell, x in found.items()
        if x.diverged is not None
    ]
    return [*lines, f"Diverged: {', '.join(lost)}.", ""] if lost else lines


def _published(table: TableName, found: _Found) -> list[str]:
    lines = [
        f"## {table.capitalize()}: {SCORES[table]} in percent, ours (the paper's; the difference)",
        "",
        "| row | space | marginal | conditional | projections | model | " + " | ".join(NAMES.values()) + " | steps | rate |",
        "|---:|---|---|---|---|---|" + "---:|" * (len(COLUMNS) + 2),
    ]
    for number, row in enumerate(ROWS[table], 1):
        of_row = {cell: x for cell, x in found.items() if cell.row == number}
        shown = []
        for column, paper, mark in zip(COLUMNS, row.scores, row.marks, strict=True):
            results = [x for cell, x in of_row.items() if cell.column == column]
            shown.append(_beside([100 * (x.r2 if table == "affine" else x.mcc) for x in results], paper, mark))
        words = (row.space, row.marginal, row.conditional, row.output, row.model)
        lines.append(f"| {number} | {' | '.join((*words, *shown))} | {_trained(of_row)} |")
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


def _trained(found: _Found) -> str:
    """Steps and rates of a row's cells."""
    if not found:
        return "- | -"
    steps = sorted({x.setting.steps for x in found.values()})
    rates = sorted({f"{x.setting.rate:g}{'' if x.setting.schedule == 'constant' else ', cosine'}" for x in found.values()})
    return f"{' to '.join(dict.fromkeys(f'{x:,}' for x in (steps[0], steps[-1])))} | {'; '.join(rates)}"


_PARTS: dict[str, Callable[[Isolation], float]] = {
    "content, linear": lambda x: x.content[0],
    "content, kernel": lambda x: x.content[1],
    "style, linear": lambda x: x.style[0],
    "style, kernel": lambda x: x.style[1],
}


def _isolation(found: _Found, scale: Scale) -> list[str]:
    lines = [
        "## Content and style: R2 in percent",
        "",
        "Views share the content; the bound should keep it and drop the style. Linear regression, then kernel ridge.",
        "",
        f"| row | content | style | outputs | {' | '.join(_PARTS)} | steps | rate |",
        "|---:|---:|---:|---:|" + "---:|" * (len(_PARTS) + 2),
    ]
    for cell in cells(["content-style"], (), 1, scale):
        setting: Any = cell.setting
        of_row = {other: x for other, x in found.items() if other.row == cell.row}
        shown = [_mean([100 * part(x) for x in of_row.values()], 1) for part in _PARTS.values()]
        sizes = f"{setting.content} | {setting.style} | {setting.outputs or setting.content}"
        lines.append(f"| {cell.row} | {sizes} | {' | '.join(shown)} | {_trained(of_row)} |")
    return [*lines, ""]
