"""Curves of runs over their epochs: the two terms of the bound, what the lens saw, and accuracy."""

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from entrec.training.run import Run

# Okabe and Ito's colours, which everyone can tell apart, each with a line style of its own for print.
STYLES = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#000000", "-"))
_PANELS = (
    ("entropy", "entropy (nats)"),
    ("reconstruction", "reconstruction (nats)"),
    ("er_bound", "ER bound (nats)"),
    ("held_out_er_bound", "ER bound, held out (nats)"),
    ("effective_rank", "effective rank, held out"),
    ("knn_top1", "kNN accuracy"),
)
_ACROSS = 3


def curves(runs: Sequence[tuple[str, Run]]) -> str:
    """The runs' curves as an SVG; what belongs to run number i is a group whose name begins with `run<i>-`."""
    shown = [panel for panel in _PANELS if any(_series(run, panel[0])[0] for _, run in runs)] or list(_PANELS[:3])
    down = -(-len(shown) // _ACROSS)
    figure = Figure(figsize=(10.5, 2.6 * down), layout="constrained")
    axes: Any = figure.subplots(down, _ACROSS, squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.remove()
    for axis, (key, label) in zip(axes.flat, shown, strict=False):
        for number, (_, run) in enumerate(runs):
            colour, line = STYLES[number % len(STYLES)]
            epochs, values = _series(run, key)
            mark = "o" if len(epochs) == 1 else None  # a line of one point is nothing
            axis.plot(epochs, values, line, marker=mark, color=colour, linewidth=1.6, gid=f"run{number}-{key}")
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_title(label, fontsize=10)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return svg(figure)


def svg(figure: Figure) -> str:
    """A figure as an SVG that can stand within a page."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def _series(run: Run, key: str) -> tuple[list[float], list[float]]:
    """The mean of each epoch's rows, at the epoch's end."""
    by_epoch: dict[int, list[float]] = {}
    for row in run.metrics:
        if key in row:
            by_epoch.setdefault(int(row["epoch"]), []).append(row[key])
    return [epoch + 1 for epoch in by_epoch], [sum(values) / len(values) for values in by_epoch.values()]
