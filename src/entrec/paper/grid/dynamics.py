"""Entropy, reconstruction and accuracy over training: which method raises its entropy, and what keeps it from falling."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.lens.verdict import FAILURES
from entrec.paper.grid.claims import Claim, Part, above
from entrec.paper.grid.curves import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    KNN,
    ORANGE,
    STYLE,
    at_ends,
    draw,
    floor,
    has_codes,
    legend_of,
    looks,
    rise,
    save,
)
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.presets import SMALL, Preset
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Pooled, Trials

METHODS = ("simclr", "byol", "dino")
_RISE = 0.1  # nats that an entropy must rise by to be called rising
_NEAR = 0.95  # of ln m
_LOWER = 0.1  # on the scale from 0 to 1: what an entropy may be below another and still be called high


def _lines(method: str) -> list[Setting]:
    """A panel's settings at the base batch."""
    found = [Setting(method), Setting(method, er=True)]
    found += [Setting(method, er, centring=False) for er in (False, True)] if method == "dino" else []
    return found + ([Setting(method, ema=1.0)] if method in ("byol", "dino") else [])


def wanted(preset: Preset) -> Wanted:
    """All lines at the base batch; the methods with and without ER in the small one too."""
    small = [Setting(method, er, fraction=SMALL) for method in METHODS for er in (False, True)]
    further = [Setting("dino", er, centring=False, fraction=SMALL) for er in (False, True)]
    return Wanted([setting for method in METHODS for setting in _lines(method)] + small, further)


def _label(setting: Setting) -> str:
    more = ["frozen random teacher"] if setting.ema == 1 else []
    return ", ".join([setting.label, *more, *([] if setting.centring else ["no centring"])])


def found(pool: Pooled, out: Path) -> Found:
    """Where each line begins and ends, the claims, and the lines."""
    rows = []
    for setting in wanted(pool.preset).all:
        trials = pool(setting)
        verdicts = ", ".join(dict.fromkeys(trials.verdicts)) or trials.state
        changes = [rise(trials, key).shown(2, sign=True) for key in ("entropy", "reconstruction", "er_bound")]
        batch = str(pool.preset.batch // setting.fraction)
        rows.append([_label(setting), batch, *changes, _held_out(trials), trials.accuracy.shown(), verdicts])
    columns = [
        "", "batch", "entropy", "reconstruction", "ER bound", "held-out entropy, 0 to 1", "linear probe (%)", "the lens says"
    ]  # fmt: skip
    note = (
        "Changes in nats from the untrained network to the last epoch's mean, on the views trained on; the held-out entropy at "
        "the end, from 0 (one point, one code) to 1 (all of the sphere, all codes alike)."
    )
    return Found(
        [Table("From the first step to the last", columns, rows, note)], _claims(pool), _figure(pool, out / "dynamics")
    )


def _held_out(trials: Trials) -> str:
    return trials.number(lambda summary: summary["held_out_entropy"]).shown(2)


def _claims(pool: Pooled) -> list[Claim]:
    rising = []
    for method in METHODS:
        change = rise(pool(method, True), "entropy")
        rising.append(Part(f"{NAMES[method]}+ER", _high(pool(method, True)), f"{change.shown(2, sign=True)} nats"))
    byol = rise(pool("byol"), "entropy")
    rises = _rises(pool("byol"))
    return [
        Claim(
            "BYOL's entropy does not rise", [Part("BYOL", None if rises is None else not rises, f"{byol.shown(2, True)} nats")]
        ),
        Claim("The entropy of every ER run rises, or that of its codes stays near ln m", rising),
        Claim("Without centring DINO collapses and DINO+ER trains", _without_centring(pool)),
        Claim("A frozen random teacher: entropy high, little learnt", _frozen(pool)),
    ]


def _rises(trials: Trials) -> bool | None:
    change = rise(trials, "entropy")
    return None if not change.by_seed else change.mean > max(_RISE, 2 * change.error)


def _high(trials: Trials) -> bool | None:
    """Whether the entropy rises; that of codes, which begins near the most it can be, may also stay there."""
    rises = _rises(trials)
    if rises is not False or not has_codes(trials):
        return rises
    last = [at_ends(rows, "entropy")[1] for rows in trials.rows.values()]
    return fmean(last) >= _NEAR * math.log(trials.config["codes"])


def _without_centring(pool: Pooled) -> list[Part]:
    own, er = (pool("dino", x, centring=False) for x in (False, True))
    parts = []
    for trials, wanted_failure in ((own, True), (er, False)):
        said = f"{', '.join(trials.verdicts)} at {trials.accuracy.shown()} %, held-out entropy {_held_out(trials)}"
        # Numbers that are none any more are a collapse of their own; ER has to be without either.
        failures = len(trials.failures) + sum(verdict in FAILURES for verdict in trials.verdicts)
        of = len(trials.failures) + len(trials.runs)
        so = None if not of else failures == of if wanted_failure else failures == 0
        parts.append(Part(trials.setting.label, so, said))
    gain = er.accuracy - own.accuracy
    return [*parts, Part("ER more accurate", above(gain), f"by {gain.shown(1, sign=True)} points")]


def _frozen(pool: Pooled) -> list[Part]:
    parts = []
    for method in ("byol", "dino"):
        base, frozen = pool(method), pool(method, ema=1.0)
        high = frozen.number(lambda summary: summary["held_out_entropy"])
        less = base.accuracy - frozen.accuracy
        lower = base.number(lambda summary: summary["held_out_entropy"]) - high
        so = None if not less.by_seed else bool(above(less)) and lower.mean <= _LOWER
        numbers = f"held-out entropy {high.shown(2)}, {frozen.accuracy.shown()} % where {base.accuracy.shown()} % with an EMA"
        parts.append(Part(NAMES[method], so, numbers))
    return parts


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    """Methods from left to right; entropy, reconstruction and accuracy from above."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 6.4), layout="constrained")
        axes = figure.subplots(3, len(METHODS), sharex=True)
        for column, method in zip(axes.T, METHODS, strict=True):
            for setting in _lines(method):
                for fraction in (1, SMALL):
                    _line(column, pool(replace(setting, fraction=fraction)), _look(setting, fraction))
            column[0].set_title(NAMES[method])
            column[2].set_xlabel("epoch")
        names = ("entropy\n(nats above one point)", "reconstruction\n(nats below perfect)", KNN)
        for row, name in zip(axes, names, strict=True):
            row[0].set_ylabel(name)
        axes[0, 0].plot([], [], color=BLACK, linestyle="--", label=f"dashed: batch {pool.preset.batch // SMALL}")
        legend_of(figure, list(axes.flat), columns=3)
        save(figure, path)
    return [(path.with_suffix(".png"), "Entropy, reconstruction and accuracy over training")]


def _look(setting: Setting, fraction: int) -> dict[str, Any]:
    if setting.ema == 1:
        colour, label = GREY, "frozen random teacher"
    elif setting.centring:
        colour, label = (BLUE, "ER") if setting.er else (BLACK, "own loss")
    else:
        colour, label = (GREEN, "ER, no centring") if setting.er else (ORANGE, "own loss, no centring")
    return {
        "color": colour,
        "linestyle": "-" if fraction == 1 else "--",
        "label": label if fraction == 1 else None,
    }


def _line(column: Any, trials: Trials, look: dict[str, Any]) -> None:
    entropy, reconstruction, accuracy = column
    if not trials.runs:
        return
    lowest = floor(trials)
    draw(entropy, trials, "entropy", scale=lambda y: y - lowest, **look)
    draw(reconstruction, trials, "reconstruction", scale=lambda y: y + lowest, **look)
    draw(accuracy, trials, "knn_top1", looks, lambda y: 100 * y, **look)


EXPERIMENT = Experiment("Dynamics: entropy, reconstruction and accuracy over training", wanted, found)
