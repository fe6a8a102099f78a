"""Which bound on the mutual information does each method raise? Measured beside what is proven."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.paper.grid import information
from entrec.paper.grid.claims import Claim, Part
from entrec.paper.grid.curves import BLUE, GREY, ORANGE, STYLE, draw, has_codes, legend_of, looks, save
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.presets import Preset
from entrec.paper.grid.published import BOUNDS
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Measured, Pooled, Trials

_RISE = 0.05  # nats: less is called staying
_KEYS = {"infonce": "held_out_infonce_bound", "er": "held_out_er_bound"}


def wanted(preset: Preset) -> Wanted:
    """Every method with its own loss."""
    return Wanted([Setting(method) for method in BOUNDS], [])


def _ends(trials: Trials, key: str) -> tuple[Measured, Measured]:
    """A bound at the first look and at the last."""
    values = {seed: y for seed, rows in trials.rows.items() if (y := looks(rows, key)[1])}
    lost = len(trials.failures)
    return Measured({seed: y[0] for seed, y in values.items()}, lost), Measured(
        {seed: y[-1] for seed, y in values.items()}, lost
    )


def _rises(trials: Trials, key: str) -> tuple[bool | None, str]:
    """Whether it rises from the first look to the last, and in words."""
    if not trials.runs:
        return None, trials.state
    first, last = _ends(trials, key)
    if not first.by_seed:
        return None, "not defined for codes"
    change = last - first
    word = "rises" if change.mean > _RISE else "falls" if change.mean < -_RISE else "stays"
    return change.mean > _RISE, f"{word}: {first.mean:.2f} to {last.mean:.2f}"


def found(pool: Pooled, out: Path) -> Found:
    """What is proven and what was measured; the claims; the bounds over training; and the exact inequality."""
    rows = []
    for method, proven in BOUNDS.items():
        seen = [_rises(pool(method), key)[1] for key in _KEYS.values()]
        rows.append([NAMES[method], proven.infonce, seen[0], proven.er, seen[1], proven.violation])
    columns = ["", "InfoNCE, paper", "InfoNCE, measured", "ER, paper", "ER, measured", "violated"]
    note = (
        "Of each method with its own loss: what the paper says of the bound (yes: shown; (yes): approximately or empirically; "
        "no: no evidence), and the bound on held-out views in nats from the first look, after the first epochs, to the last. "
        "A bound that rises is not thereby proven to be maximised."
    )
    exact = information.table()
    tables = [Table("Bounds on I(Z1; Z2)", columns, rows, note), _exact_table(exact)]
    numbers: dict[str, Any] = {"information": [x._asdict() for x in exact]}
    return Found(tables, _claims(pool, exact), _figure(pool, out / "mi-relation"), numbers)


def _exact_table(exact: list[information.Information]) -> Table:
    rows = []
    for rho in information.RHOS:
        for kind in ("quantised", "softmax"):
            own = [x for x in exact if (x.rho, x.kind) == (rho, kind)]
            rows.append([f"{rho:g}", kind, *(f"{x.code:.4f}" for x in own), f"{own[0].projections:.4f}"])
    columns = ["correlation", "code", *(f"m = {codes}" for codes in information.CODES), "I(Z1; Z2)"]
    note = (
        "Two normal numbers of which both informations are known; W2 is the interval that Z2 lies in, or drawn from a softmax."
    )
    return Table("I(Z1; W2) in nats, for codes of m values", columns, rows, note)


def _claims(pool: Pooled, exact: list[information.Information]) -> list[Claim]:
    def parts(bound: str) -> list[Part]:
        said = [method for method, proven in BOUNDS.items() if getattr(proven, bound) != "no"]
        return [Part(NAMES[method], *_rises(pool(method), _KEYS[bound])) for method in said]

    worst = max(x.code - x.projections for x in exact)
    nearest = max(x.code / x.projections for x in exact)
    numbers = f"in all {len(exact)} cases, at most {nearest:.4f} of it" if worst <= 0 else f"passed by {worst:.2g} nats"
    return [
        Claim("The ER bound rises in every method", parts("er")),
        Claim("The InfoNCE bound rises where the paper calls it maximised (CMC; approximately IR, MoCo)", parts("infonce")),
        Claim("I(Z1; W2) <= I(Z1; Z2)", [Part("normal pairs", worst <= 0, numbers)]),
    ]


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    """A panel for each method."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.8, 4.2), layout="constrained")
        axes = figure.subplots(2, 4, sharex=True)
        for axis, method in zip(axes.flat, BOUNDS, strict=True):
            trials = pool(method)
            draw(axis, trials, _KEYS["er"], looks, color=BLUE, label="ER bound")
            draw(axis, trials, _KEYS["infonce"], looks, color=ORANGE, label="InfoNCE bound")
            if trials.runs:
                draw(
                    axis,
                    trials,
                    "held_out_er_ceiling",
                    looks,
                    color=BLUE,
                    linestyle=":",
                    marker=None,
                    label="ER bound's ceiling",
                )
            axis.set_title(NAMES[method] + (" (codes)" if trials.runs and has_codes(trials) else ""))
            axis.axhline(0, color=GREY, linewidth=0.6)
        for axis in axes[1]:
            axis.set_xlabel("epoch")
        for axis in axes[:, 0]:
            axis.set_ylabel("nats")
        legend_of(figure, list(axes.flat))
        save(figure, path)
    return [(path.with_suffix(".png"), "Bounds on the mutual information on held-out views, over training")]


EXPERIMENT = Experiment("Bounds on the mutual information: which of them each method raises", wanted, found)
