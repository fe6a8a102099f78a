"""Does it matter how the entropy is estimated? Discrete against continuous for DINO, Joe against the plug-in for SimCLR."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.paper.drawing import BLACK, BLUE, ORANGE, STYLE, save
from entrec.paper.grid.claims import Claim, alike
from entrec.paper.grid.curves import KNN, draw, looks, say_why_empty
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.presets import SMALL, Preset
from entrec.paper.grid.published import DINO
from entrec.paper.grid.setting import Setting
from entrec.paper.grid.trials import Pooled

# By the name that the paper's table has; DINO's own estimator is the discrete one, and SimCLR's the plug-in.
_DINO: dict[str | None, Setting] = {
    None: Setting("dino"),
    "discrete": Setting("dino", er=True),
    "plugin": Setting("dino", er=True, estimator="plugin"),
}
_WORDS: dict[str | None, str] = {None: "own loss", "discrete": "discrete", "plugin": "continuous"}
PLUGIN, JOE = Setting("simclr", er=True), Setting("simclr", er=True, estimator="joe")
_POINTS = 1.0  # within which accuracies are called the same; the paper's differ by 0.24


def wanted(preset: Preset) -> Wanted:
    """DINO by three losses at two batches; SimCLR+ER by two estimators."""
    return Wanted([*_DINO.values(), PLUGIN, JOE], [replace(x, fraction=SMALL) for x in (*_DINO.values(), PLUGIN, JOE)])


def found(pool: Pooled, out: Path) -> Found:
    """The table, the claims, and accuracy over training."""
    small = pool.preset.batch // SMALL
    rows = []
    for key, row in _DINO.items():
        rows.append([row.label, _WORDS[key], *_both(pool, row, DINO[key].accuracy, DINO[key].batch)])
    rows += [[row.label, word, *_both(pool, row)] for row, word in ((PLUGIN, "plug-in"), (JOE, "Joe"))]
    note = "Linear probe in percent, and the points that it drops by. In brackets the paper's; of Joe's it has a figure alone."
    columns = ["", "entropy", "accuracy [paper]", f"drop at batch {small} [paper]"]
    dino, simclr = ([pool(x).accuracy for x in pair] for pair in ((_DINO["discrete"], _DINO["plugin"]), (PLUGIN, JOE)))
    within = f"no difference (of more than {_POINTS:g} point)"
    claims = [
        Claim(f"A discrete and a continuous entropy make {within}", [alike("DINO+ER", dino[0], dino[1], _POINTS)]),
        Claim(f"The plug-in and Joe's estimate make {within}", [alike("SimCLR+ER", simclr[0], simclr[1], _POINTS)]),
    ]
    return Found(
        [Table("Accuracy by estimator of the entropy", columns, rows, note)], claims, _figure(pool, out / "estimators")
    )


def _both(pool: Pooled, row: Setting, accuracy: float | None = None, batch: float | None = None) -> list[str]:
    base = pool(row).accuracy
    return [base.shown(2, beside=accuracy), (base - pool(replace(row, fraction=SMALL)).accuracy).shown(2, beside=batch)]


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    """Online accuracy over training."""
    lines = (
        ("SimCLR+ER", ((PLUGIN, BLUE, "plug-in"), (JOE, ORANGE, "Joe"))),
        (
            "DINO",
            tuple((x, colour, _WORDS[key]) for (key, x), colour in zip(_DINO.items(), (BLACK, BLUE, ORANGE), strict=True)),
        ),
    )
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.6, 2.6), layout="constrained")
        for axis, (title, own) in zip(figure.subplots(1, 2), lines, strict=True):
            for setting, colour, label in own:
                draw(axis, pool(setting), "knn_top1", looks, lambda y: 100 * y, color=colour, label=label)
            axis.set(title=title, xlabel="epoch", ylabel=KNN)
            if axis.get_lines():
                axis.legend(loc="best")
            else:
                say_why_empty(axis, (pool(setting) for setting, _, _ in own))
        save(figure, path)
    return [(path.with_suffix(".png"), "Online accuracy over training, by estimator")]


EXPERIMENT = Experiment("Estimators of the entropy: discrete or continuous, Joe's or the plug-in", wanted, found)
