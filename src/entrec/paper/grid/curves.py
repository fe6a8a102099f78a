"""A run's numbers over training, and how they are drawn."""

import math
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from entrec.estimators import VonMisesFisher
from entrec.paper.drawing import GREY
from entrec.paper.grid.measured import NOT_RUN, Measured
from entrec.paper.grid.trials import Rows, Trials

KNN = "online kNN, held out (%)"
Since = Literal["untrained", "first epoch"]
CODES = {"dino": "codes", "swav": "prototypes", "deepcluster": "clusters"}


def has_codes(trials: Trials) -> bool:
    """Whether the entropy is of codes, and not of points on a sphere."""
    return trials.setting.method in CODES and trials.config.get("estimator", "discrete") == "discrete"


def floor(trials: Trials) -> float:
    """The entropy of a single point, or of a single code, in nats: what all entropies are shown above."""
    if has_codes(trials):
        return 0.0
    kappa, dim = float(trials.config["kappa"]), trials.config["bottleneck" if trials.setting.method == "dino" else "dim"]
    return -float(VonMisesFisher(kappa).log_normalizer(dim)) - kappa


def by_epoch(rows: Rows, key: str) -> tuple[list[float], list[float]]:
    """Means over each epoch, at its middle, after the first row, which is the untrained network's, at 0."""
    measured = [row for row in rows if key in row]
    x, y = ([0.0], [measured[0][key]]) if measured and measured[0]["step"] == 1 else ([], [])
    for epoch in sorted({row["epoch"] for row in measured}):
        x.append(epoch + 0.5)
        y.append(fmean(row[key] for row in measured if row["epoch"] == epoch))
    return x, y


def looks(rows: Rows, key: str) -> tuple[list[float], list[float]]:
    """What was measured at the end of epochs."""
    found = [(row["epoch"] + 1, row[key]) for row in rows if key in row]
    return [x for x, _ in found], [y for _, y in found]


def rise(trials: Trials, key: str, since: Since = "untrained") -> Measured:
    """From the untrained network, in the first row, or from the first epoch's mean, to the last epoch's mean."""

    def read(rows: Rows) -> float | None:
        x, y = by_epoch(rows, key)
        y = [value for place, value in zip(x, y, strict=True) if place > 0 or since == "untrained"]
        return y[-1] - y[0] if y and math.isfinite(y[-1] - y[0]) else None

    return trials.over_training(read)


def last(trials: Trials, key: str) -> Measured:
    """The last epoch's mean."""
    return trials.over_training(lambda rows: y[-1] if (y := by_epoch(rows, key)[1]) else None)


def draw(
    axis: Axes,
    trials: Trials,
    key: str,
    read: Callable[[Rows, str], tuple[list[float], list[float]]] = by_epoch,
    scale: Callable[[float], float] = lambda y: y,
    **look: Any,
) -> None:
    """The mean over seeds, and in light from the lowest of them to the highest."""
    found = [read(rows, key) for _, rows in sorted(trials.rows.items())]
    by_place: dict[float, list[float]] = {}
    for x, y in found:
        for place, value in zip(x, y, strict=True):
            by_place.setdefault(place, []).append(scale(value))
    if not by_place:
        return
    places = sorted(by_place)
    look = {"linewidth": 1.3, "marker": "o" if len(places) < 8 else None, "markersize": 2.5, **look}
    axis.plot(places, [fmean(by_place[place]) for place in places], **look)
    if len(found) > 1:
        low, high = ([end(by_place[place]) for place in places] for end in (min, max))
        axis.fill_between(places, low, high, color=look.get("color"), alpha=0.15, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))  # epochs


def say_why_empty(axis: Axes, trials: Iterable[Trials]) -> None:
    """In a panel that nothing of these is drawn in, which otherwise looks as if it were broken."""
    said = "failed" if any(x.failures for x in trials) else NOT_RUN
    axis.text(0.5, 0.5, said, transform=axis.transAxes, ha="center", va="center", color=GREY)
