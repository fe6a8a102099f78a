"""Entropy, reconstruction and accuracy over training: which method raises its entropy, and what keeps it from falling."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.lens.verdict import FAILURES, HOPELESS
from entrec.paper.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, STYLE, legend_of, save
from entrec.paper.grid.claims import ENOUGH, Claim, Part, State, at_most, both, either, judged, over
from entrec.paper.grid.collapse import collapses, more_accurate
from entrec.paper.grid.curves import KNN, Since, draw, floor, has_codes, last, looks, rise, say_why_empty
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.measured import Measured
from entrec.paper.grid.presets import SMALL, Preset
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Pooled, Trials

METHODS = ("simclr", "byol", "dino")
_RISE = 0.1  # nats that an entropy must rise by to be called rising
_NEAR = 0.95  # of ln m
_HIGH = 0.5  # on the scale from 0 to 1: what is called a high entropy
# Codes that are even for every datum are a constant output too, which the lens calls by the other name.
_COLLAPSED = (*HOPELESS, "uninformative")


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
        changes = [rise(trials, key).shown(2, sign=True) for key in ("entropy", "reconstruction", "er_bound")]
        batch = str(pool.preset.batch // setting.fraction)
        rows.append([_label(setting), batch, *changes, _held_out(trials).shown(2), trials.accuracy.shown(), trials.said])
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


def _held_out(trials: Trials) -> Measured:
    return trials.number(lambda summary: summary["held_out_entropy"])


def _claims(pool: Pooled) -> list[Claim]:
    falling = [_not_rising(pool("byol"), since) for since in get_args(Since)]
    rising = [_rising(pool(setting)) for setting in wanted(pool.preset).claims if setting.er]
    return [
        Claim("BYOL's entropy does not rise", falling),
        Claim("The entropy of every ER run rises, or that of its codes stays near ln m", rising),
        Claim("Without centring DINO collapses and DINO+ER trains", _without_centring(pool)),
        Claim(f"A frozen random teacher: entropy high (over {_HIGH:g} of the way from 0 to 1), little learnt", _frozen(pool)),
    ]


def _not_rising(trials: Trials, since: Since) -> Part:
    """It may fall in the first steps and rise from there: which of the two is meant, a reader must know."""
    change = rise(trials, "entropy", since)
    word = "from the untrained network" if since == "untrained" else "from the first epoch's mean"
    return judged(word, change, at_most(change, _RISE), f"{change.shown(2, sign=True)} nats", diverged="not decided")


def _rising(trials: Trials) -> Part:
    """Whether the entropy rises; that of codes, which begins near the most it can be, may also stay there."""
    change = rise(trials, "entropy")
    state: State = over(change, _RISE)
    if trials.runs and has_codes(trials):
        state = either(state, over(last(trials, "entropy"), _NEAR * math.log(trials.config["codes"])))
    batch = "" if trials.setting.fraction == 1 else f" at 1/{trials.setting.fraction} of the batch"
    return judged(f"{_label(trials.setting)}{batch}", change, state, f"{change.shown(2, sign=True)} nats", diverged="not so")


def _without_centring(pool: Pooled) -> list[Part]:
    own, er = (pool("dino", x, centring=False) for x in (False, True))
    numbers = f"{er.said} at {er.accuracy.shown()} %, held-out entropy {_held_out(er).shown(2)}"
    healthy = er.number(lambda summary: float(summary["verdict"] not in FAILURES))
    trains = judged(er.setting.label, healthy, "so" if all(healthy.by_seed.values()) else "not so", numbers, diverged="not so")
    return [
        collapses(own.setting.label, own, pool("dino"), "with centring", _COLLAPSED),
        trains,
        more_accurate("ER more accurate", er, own),
    ]


def _frozen(pool: Pooled) -> list[Part]:
    parts = []
    for method in ("byol", "dino"):
        base, frozen = pool(method), pool(method, ema=1.0)
        entropy, less = _held_out(frozen), base.accuracy - frozen.accuracy
        numbers = (
            f"held-out entropy {entropy.shown(2)}, {frozen.accuracy.shown()} % where {base.accuracy.shown()} % with an EMA"
        )
        parts.append(judged(NAMES[method], less, both(over(less), over(entropy, _HIGH)), numbers))
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
            for axis in column:
                if not axis.get_lines():
                    say_why_empty(axis, map(pool, _lines(method)))
            column[0].set_title(NAMES[method])
            column[2].set_xlabel("epoch")
        names = ("entropy\n(nats above one point)", "reconstruction\n(nats below perfect)", KNN)
        for row, name in zip(axes, names, strict=True):
            row[0].set_ylabel(name)
        if any(line.get_linestyle() == "--" for axis in axes.flat for line in axis.get_lines()):
            axes[-1, -1].plot([], [], color=GREY, linestyle="--", label=f"dashed: batch {pool.preset.batch // SMALL}")
        legend_of(figure, list(axes.flat), columns=3)
        save(figure, path)
    few = [
        f"{_label(x)} {pool.preset.batch // x.fraction} ({n})"
        for x in wanted(pool.preset).all
        if 0 < (n := len(pool(x).runs)) < ENOUGH
    ]
    told = f" Of fewer than {ENOUGH} seeds: {', '.join(few)}." if few else ""
    bands = "Bands go from the lowest seed to the highest."
    return [(path.with_suffix(".png"), f"Entropy, reconstruction and accuracy (kNN) over training. {bands}{told}")]


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
