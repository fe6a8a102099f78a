"""kNN over training, a panel for each method."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from entrec.paper.drawing import BLACK, BLUE, GREY, STYLE, legend_of, save
from entrec.paper.grid.curves import looks
from entrec.paper.grid.trials import Rows

_Panel = tuple[float, Sequence[Rows], Sequence[Rows]]  # lightly's best, our runs' rows, and those of ER


def draw(panels: Mapping[str, _Panel], path: Path) -> None:
    """Write PATH.png and PATH.svg."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 2.4), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True)
        for axis, (name, (published, own, er)) in zip(axes, panels.items(), strict=True):
            axis.axhline(published, color=GREY, linewidth=1, linestyle=":", label="lightly's best")
            for runs, colour, label in ((own, BLACK, "own loss"), (er, BLUE, "ER")):
                for number, rows in enumerate(runs):
                    x, y = looks(rows, "knn_top1")
                    axis.plot(x, [100 * v for v in y], color=colour, linewidth=1.3, label=label if not number else None)
            axis.set(title=name, xlabel="epoch")
            axis.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes[0].set_ylabel("kNN, k = 200 (%)")
        legend_of(figure, list(axes))
        save(figure, path)
