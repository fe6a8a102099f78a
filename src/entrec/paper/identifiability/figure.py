"""Scores against steps, a panel for each row of a table."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from entrec.paper.identifiability.grid import Cell
from entrec.paper.identifiability.published import COLUMNS, NAMES, ROWS, SCORES, Row, TableName

_LOOKS = {"infonce": ("#000000", "-"), "er-h10": ("#0072B2", "--"), "er-h1": ("#D55E00", "-")}
_WORDS = {"vmf": "vMF", "normal": "Normal", "laplace": "Laplace", "gennorm": "GenNorm", "uniform": "uniform"}


def curves(found: Mapping[Cell, Any], table: TableName, path: Path) -> None:
    """Draw the rows that have been run, a line for each seed; PNG and SVG."""
    rows = sorted({cell.row for cell in found})
    across = min(4, len(rows))
    down = math.ceil(len(rows) / across)
    figure = Figure(figsize=(max(4.0, 2.3 * across + 0.5), 2.0 * down + 0.6), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey=True)
    named: dict[str, Any] = {}
    for axis, row in zip(axes.flat, rows, strict=False):
        for cell, result in found.items():
            if cell.row == row:
                steps, scores = zip(
                    *((p.step, 100 * (p.r2 if table == "affine" else p.mcc)) for p in result.curve), strict=True
                )
                colour, line = _LOOKS[cell.column]
                (named[cell.column],) = axis.plot(steps, scores, color=colour, linestyle=line, linewidth=1.2)
        axis.set_title(f"{row}. {_title(ROWS[table][row - 1])}", fontsize=7.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.tick_params(labelsize=7)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 25k
        axis.set_ylim(0, 102)
    for axis in axes.flat[len(rows) :]:
        axis.set_visible(False)
    figure.supxlabel("steps", fontsize=9)
    figure.supylabel(f"{SCORES[table].replace('R2', '$R^2$')} (%)", fontsize=9)
    shown = [column for column in COLUMNS if column in named]
    figure.legend(
        [named[x] for x in shown], [NAMES[x] for x in shown], loc="outside upper center", ncols=3, frameon=False, fontsize=8
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=200)


def _title(row: Row) -> str:
    """The latents above, the model below."""
    marginal = "" if row.marginal == "uniform" else f"{_law(row.marginal)}, "
    return f"{row.space}, {marginal}{_law(row.conditional)}\n{row.output}, {_law(row.model)}"


def _law(word: str) -> str:
    name, *numbers = word.split(":")
    return _WORDS[name] + (f"({', '.join(numbers)})" if numbers else "")
