"""Methods with codes: do they keep the entropy of their codes near its largest value, ln m?"""

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.paper.drawing import BLUE, GREEN, ORANGE, STYLE, save
from entrec.paper.grid.claims import Claim, judged, over
from entrec.paper.grid.curves import CODES, by_epoch, draw
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.measured import Measured
from entrec.paper.grid.presets import Preset
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Pooled, Rows, Trials

METHODS = ("swav", "deepcluster", "dino")
_CLOSE = 0.9  # of ln m: what is called close to it


def wanted(preset: Preset) -> Wanted:
    """Each with its own loss."""
    return Wanted([Setting(method) for method in METHODS], [])


def largest(trials: Trials) -> float:
    """Ln m."""
    return math.log(trials.config[CODES[trials.setting.method]])


def _over_training(trials: Trials) -> list[tuple[str, Measured]]:
    """The entropy over ln m: untrained, its lowest epoch, and its last."""

    def measured(choose: Callable[[list[float]], float]) -> Measured:
        def read(rows: Rows) -> float | None:
            y = by_epoch(rows, "entropy")[1]
            return choose(y) / largest(trials) if y else None

        return trials.over_training(read)

    return [
        ("untrained", measured(lambda y: y[0])),
        ("lowest epoch", measured(lambda y: min(y[1:] or y))),
        ("last epoch", measured(lambda y: y[-1])),
    ]


def found(pool: Pooled, out: Path) -> Found:
    """The table, the claim, and the entropies over training."""
    rows, parts = [], []
    for method in METHODS:
        trials = pool(method)
        entropies = dict(_over_training(trials))
        held_out = trials.number(lambda summary: summary["held_out_entropy"])
        m = str(trials.config[CODES[method]]) if trials.runs else "-"
        rows.append([NAMES[method], m, *(x.shown(3) for x in entropies.values()), held_out.shown(3), trials.accuracy.shown()])
        low = entropies["lowest epoch"]
        numbers = f"{low.shown(3)} at its lowest, {entropies['last epoch'].shown(3)} at the end"
        parts.append(judged(NAMES[method], low, over(low, _CLOSE), numbers, diverged="not so"))
    columns = ["", "codes m", "untrained", "lowest epoch", "last epoch", "held out, at the end", "linear probe (%)"]
    note = "Entropy of the student's codes over ln m: 1 where all are used alike."
    claim = Claim(f"SwAV, DeepCluster and DINO keep the entropy of their codes close to ln m (over {_CLOSE:g} of it)", parts)
    return Found([Table("Entropy over ln m", columns, rows, note)], [claim], _figure(pool, out / "clustering"))


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.4, 2.8), layout="constrained")
        axis = figure.subplots()
        for method, colour in zip(METHODS, (BLUE, GREEN, ORANGE), strict=True):
            trials = pool(method)
            if trials.runs:
                most = largest(trials)
                draw(axis, trials, "entropy", scale=lambda y, most=most: y / most, color=colour, label=NAMES[method])  # type: ignore[misc]
        axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axis.set(xlabel="epoch", ylabel=r"entropy of the codes / $\ln m$", ylim=(0, 1.04))
        if len(axis.get_lines()) > 1:
            axis.legend(loc="lower right")
        save(figure, path)
    return [(path.with_suffix(".png"), "Entropy of the codes over ln m")]


EXPERIMENT = Experiment("Clustering: the entropy of codes over ln m", wanted, found)
