"""Scores against steps, a panel for each row of a table, and where the paper's ended."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import ArrayLike, NDArray

from entrec.paper.drawing import BLACK, BLUE, GREY, RED, STYLE, legend_of, save
from entrec.paper.identifiability.grid import Cell
from entrec.paper.identifiability.published import COLUMNS, NAMES, ROWS, SCORES, Row, TableName

Array = NDArray[np.float64]

_LOOKS = {"infonce": (BLACK, "-"), "er-h10": (BLUE, "--"), "er-h1": (RED, "-")}
_MARK: dict[str, Any] = {"marker": "<", "markersize": 4, "linestyle": "none", "fillstyle": "none"}
_TICKS = (0, 90, 99, 99.9)
_ACROSS = 4  # panels at the most
_TOP = 99.99  # above it scores are as good as 100
_WORDS = {"vmf": "vMF", "normal": "Normal", "laplace": "Laplace", "gennorm": "GenNorm", "uniform": "uniform"}


def height(score: ArrayLike) -> Array:
    """Of a score in percent, by what it lacks: 90, 99 and 99.9 are as far apart from each other as 0 and 90.

    >>> [round(x, 9) for x in height([0, 90, 99, 99.9, 100]).tolist()]
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    found: Array = 2 - np.log10(np.maximum(100 - np.asarray(score, dtype=float), 100 - _TOP))
    return found


def score_at(height: ArrayLike) -> Array:
    """The score in percent of a height."""
    found: Array = 100 - 10 ** (2 - np.asarray(height, dtype=float))
    return found


def curves(found: Mapping[Cell, Any], table: TableName, path: Path) -> None:
    """Draw the rows that have been run, a line for each seed; PNG and SVG."""
    rows = sorted({cell.row for cell in found})
    down = math.ceil(len(rows) / _ACROSS)
    across = math.ceil(len(rows) / down)  # as even as it can be
    with mpl.rc_context({**STYLE, "axes.titlesize": 7.5, "xtick.labelsize": 7, "ytick.labelsize": 7}):
        figure = Figure(figsize=(max(4.0, 2.3 * across + 0.5), 2.0 * down + 0.6), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False, sharey=True, gridspec_kw={"wspace": 0.12})  # room for the marks
        for axis, row in zip(axes.flat, rows, strict=False):
            _draw(axis, {cell: x for cell, x in found.items() if cell.row == row}, table, ROWS[table][row - 1])
            axis.set_title(f"{row}. {_title(ROWS[table][row - 1])}")
        for axis in axes.flat[len(rows) :]:
            axis.set_visible(False)
        figure.supxlabel("steps")
        figure.supylabel(f"{SCORES[table].replace('R2', '$R^2$')} (%)")
        axes.flat[len(rows) - 1].plot([], [], color=GREY, label="the paper's, after all its steps", **_MARK)
        legend_of(figure, list(axes.flat))
        save(figure, path)


def _draw(axis: Axes, found: Mapping[Cell, Any], table: TableName, row: Row) -> None:
    """A panel: our scores at each step, and the published ones beside it."""
    for column in COLUMNS:
        (colour, line), name = _LOOKS[column], NAMES[column]
        for result in (result for cell, result in found.items() if cell.column == column):
            scores = [100 * (point.r2 if table == "affine" else point.mcc) for point in result.curve]
            axis.plot([point.step for point in result.curve], scores, color=colour, linestyle=line, linewidth=1.2, label=name)
    beside = {"transform": axis.get_yaxis_transform(), "clip_on": False, **_MARK}
    for place, (column, published) in enumerate(zip(COLUMNS, row.scores, strict=True)):
        axis.plot(1.02 + 0.03 * place, published, color=_LOOKS[column][0], **beside)  # side by side, as some are equal
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 25k
    axis.set_xlim(left=0)
    axis.set_yscale("function", functions=(height, score_at))
    axis.set_ylim(0, _TOP)
    axis.set_yticks(_TICKS, map(str, _TICKS), minor=False)


def _title(row: Row) -> str:
    """The latents above, the model below."""
    marginal = "" if row.marginal == "uniform" else f"{_law(row.marginal)}, "
    return f"{row.space}, {marginal}{_law(row.conditional)}\n{row.output}, {_law(row.model)}"


def _law(word: str) -> str:
    name, *numbers = word.split(":")
    return _WORDS[name] + (f"({', '.join(numbers)})" if numbers else "")
