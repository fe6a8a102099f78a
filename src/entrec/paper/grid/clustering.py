"""Methods with codes: do they keep the entropy of their codes near its largest value, ln m?"""

import math
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.paper.grid.claims import Claim, Part
from entrec.paper.grid.curves import BLUE, CODES, GREEN, ORANGE, STYLE, by_epoch, draw, save
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.presets import Preset
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Measured, Pooled, Trials

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
    values = {seed: [x / largest(trials) for x in by_epoch(rows, "entropy")[1]] for seed, rows in trials.rows.items()}
    lost = len(trials.failures)
    return [
        ("untrained", Measured({seed: x[0] for seed, x in values.items()}, lost)),
        ("lowest epoch", Measured({seed: min(x[1:] or x) for seed, x in values.items()}, lost)),
        ("last epoch", Measured({seed: x[-1] for seed, x in values.items()}, lost)),
    ]


def found(pool: Pooled, out: Path) -> Found:
    """The table, the claim, and the entropies over training."""
    rows, parts = [], []
    for method in METHODS:
        trials = pool(method)
        over = dict(_over_training(trials))
        held_out = trials.number(lambda summary: summary["held_out_entropy"])
        m = str(trials.config[CODES[method]]) if trials.runs else "-"
        rows.append([NAMES[method], m, *(x.shown(3) for x in over.values()), held_out.shown(3), trials.accuracy.shown()])
        low = over["lowest epoch"]
        numbers = f"{low.shown(3)} at its lowest, {over['last epoch'].shown(3)} at the end"
        parts.append(Part(NAMES[method], None if not low.by_seed else low.mean >= _CLOSE, numbers))
    columns = ["", "codes m", "untrained", "lowest epoch", "last epoch", "held out, at the end", "linear probe (%)"]
    note = "Entropy of the student's codes over ln m: 1 where all are used alike."
    claim = Claim(
        f"SwAV, DeepCluster and DINO keep the entropy of their codes close to ln m (at least {_CLOSE:g} of it)", parts
    )
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
