"""The weight lambda of the reconstruction: too much of it collapses, too little learns little."""

from pathlib import Path

import matplotlib as mpl
from matplotlib import colormaps
from matplotlib.figure import Figure

from entrec.lens.verdict import HOPELESS
from entrec.paper.drawing import STYLE, save
from entrec.paper.grid.claims import Claim, above
from entrec.paper.grid.collapse import lens_says, more_accurate
from entrec.paper.grid.curves import KNN, draw, floor, looks, rise
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.presets import Preset
from entrec.paper.grid.setting import Setting
from entrec.paper.grid.trials import Pooled, Trials

METHOD = "simclr"


def wanted(preset: Preset) -> Wanted:
    """SimCLR+ER at every weight; the ends and the bound itself carry the claims."""
    ends = [min(preset.weights), 1.0, max(preset.weights)]
    others = [weight for weight in preset.weights if weight not in ends]
    return Wanted([_at(weight) for weight in ends], [_at(weight) for weight in others])


def _at(weight: float) -> Setting:
    return Setting(METHOD, er=True, weight=weight)


def found(pool: Pooled, out: Path) -> Found:
    """The table, the claims, and the terms and the accuracy over training."""
    rows = []
    for weight in pool.preset.weights:
        trials = pool(_at(weight))
        changes = [rise(trials, key).shown(2, sign=True) for key in ("entropy", "reconstruction")]
        held_out = trials.number(lambda summary: summary["held_out_entropy"]).shown(2)
        rows.append([f"{weight:g}", *changes, held_out, trials.accuracy.shown(), trials.said])
    columns = ["lambda", "entropy", "reconstruction", "held-out entropy, 0 to 1", "linear probe (%)", "the lens says"]
    note = "SimCLR+ER. Changes in nats from the untrained network to the last epoch; lambda = 1 is the bound itself."
    return Found([Table("Weights of the reconstruction", columns, rows, note)], _claims(pool), _figure(pool, out / "weights"))


def _claims(pool: Pooled) -> list[Claim]:
    small, bound, large = (pool(_at(weight)) for weight in (min(pool.preset.weights), 1.0, max(pool.preset.weights)))
    loss = bound.accuracy - small.accuracy
    little = above(_lambda(small), loss, f"{small.accuracy.shown()} %, {loss.shown()} points below that at 1")
    return [
        Claim("Large lambda collapses, and the lens says so", [lens_says("the lens", large, bound, "at 1", HOPELESS)]),
        Claim("Large lambda leads to poor performance", [more_accurate(f"1 better than {_lambda(large)}", bound, large)]),
        Claim("Small lambda learns little", [little]),
    ]


def _lambda(trials: Trials) -> str:
    return f"lambda {trials.setting.weight:g}"


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    """Both terms on the left, the online probe on the right."""
    weights = pool.preset.weights
    colours = colormaps["plasma"]([0.82 * place / max(1, len(weights) - 1) for place in range(len(weights))])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 2.8), layout="constrained")
        terms, reconstruction, accuracy = figure.subplots(1, 3)
        for weight, colour in zip(weights, colours, strict=True):
            trials = pool(_at(weight))
            if not trials.runs:
                continue
            lowest = floor(trials)
            draw(terms, trials, "entropy", scale=lambda y, low=lowest: y - low, color=colour)  # type: ignore[misc]
            draw(reconstruction, trials, "reconstruction", scale=lambda y, low=lowest: y + low, color=colour)  # type: ignore[misc]
            draw(accuracy, trials, "knn_top1", looks, lambda y: 100 * y, color=colour, label=rf"$\lambda$ = {weight:g}")
        terms.set(xlabel="epoch", ylabel="entropy (nats above one point)")
        reconstruction.set(xlabel="epoch", ylabel="reconstruction (nats below perfect)")
        accuracy.set(xlabel="epoch", ylabel=KNN)
        if accuracy.get_lines():
            figure.legend(loc="outside right center")
        save(figure, path)
    return [(path.with_suffix(".png"), "Both terms and accuracy over training, by weight of the reconstruction")]


EXPERIMENT = Experiment("Weights of the reconstruction", wanted, found)
