"""Curves of runs over their epochs: the two terms of the bound, the bound, and accuracy."""

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from entrec.training.run import Run

# Okabe and Ito's colours, which everyone can tell apart, each with a line style of its own for print.
_STYLES = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#000000", "-"))
_PANELS = (
    ("entropy", "entropy (nats)"),
    ("reconstruction", "reconstruction (nats)"),
    ("er_bound", "ER bound (nats)"),
    ("knn_top1", "kNN accuracy"),
)


def curves(runs: Sequence[tuple[str, Run]]) -> str:
    """The runs' curves as an SVG."""
    figure = Figure(figsize=(10.5, 2.6), layout="constrained")
    axes: Any = figure.subplots(1, len(_PANELS))
    for axis, (key, label) in zip(axes, _PANELS, strict=True):
        for (name, run), (colour, line) in zip(runs, _STYLES * len(runs), strict=False):
            epochs, values = _series(run, key)
            axis.plot(epochs, values, line, color=colour, label=name, linewidth=1.6)
        axis.set_xlabel("epoch")
        axis.set_title(label, fontsize=10)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
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
