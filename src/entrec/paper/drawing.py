"""How all figures of runs look, and how they are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from entrec.files import appearing

# Okabe and Ito's colours, which remain distinct to colour-blind readers.
BLACK, BLUE, ORANGE, GREEN, RED, GREY = "#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#888888"
STYLE: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.titlesize": 9,
    "svg.hashsalt": "entrec",  # the same file from the same numbers
}


def save(figure: Figure, path: Path) -> list[Path]:
    """As PNG and SVG, each whole or not at all."""
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    ways: list[dict[str, Any]] = [{"dpi": 200}, {"metadata": {"Date": None}}]
    for where, how in zip(paths, ways, strict=True):
        with appearing(where) as unfinished:
            figure.savefig(unfinished, **how)
    return paths


def legend_of(figure: Figure, axes: Sequence[Axes], columns: int = 4) -> None:
    """One legend above all panels, each label once."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=columns)
