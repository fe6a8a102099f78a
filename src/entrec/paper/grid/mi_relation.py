"""Which bound on the mutual information does each method raise? Measured beside what is proven."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.paper.drawing import BLUE, GREY, ORANGE, STYLE, legend_of, save
from entrec.paper.grid import information
from entrec.paper.grid.claims import Claim, Part, at_most, both, judged, over
from entrec.paper.grid.curves import draw, has_codes, looks, say_why_empty
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.measured import Measured
from entrec.paper.grid.presets import Preset
from entrec.paper.grid.published import BOUNDS
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Pooled, Rows, Trials

_RISE = 0.05  # nats: less is called staying
_KEYS = {"infonce": "held_out_infonce_bound", "er": "held_out_er_bound"}


def wanted(preset: Preset) -> Wanted:
    """Every method with its own loss."""
    return Wanted([Setting(method) for method in BOUNDS], [])


def _ends(trials: Trials, key: str) -> tuple[Measured, Measured]:
    """A bound at the first look and at the last."""

    def at(place: int) -> Measured:
        return trials.over_training(lambda rows: y[place] if (y := looks(rows, key)[1]) else None)

    return at(0), at(-1)


def _change(trials: Trials, key: str) -> Measured:
    """From the first look to the last, of runs that were looked at twice."""

    def read(rows: Rows) -> float | None:
        y = looks(rows, key)[1]
        return y[-1] - y[0] if len(y) > 1 else None

    return trials.over_training(read)


def _defined(trials: Trials, key: str) -> bool:
    return key != _KEYS["infonce"] or not has_codes(trials)


def _told(trials: Trials, key: str) -> str:
    """How it goes from the first look to the last, in words."""
    if not trials.runs:
        return trials.state
    if not _defined(trials, key):
        return "not defined for codes"
    (first, last), change = _ends(trials, key), _change(trials, key)
    if not first.by_seed:
        return "not measured"
    if not change.by_seed:
        return f"a single look: {last.mean:.2f}"
    word = "rises" if over(change, _RISE) == "so" else "falls" if over(-change, _RISE) == "so" else "changes"
    word = "stays" if both(at_most(change, _RISE), at_most(-change, _RISE)) == "so" else word
    spread = f" ({change.shown(2, sign=True)})" if len(change.by_seed) > 1 or change.failed else ""
    return f"{word}: {first.mean:.2f} to {last.mean:.2f}{spread}"


def _rises(method: str, trials: Trials, key: str) -> Part:
    """Whether it rises; a run that was looked at once tells nothing of it."""
    change, numbers = _change(trials, key), _told(trials, key)
    if trials.runs and not change.by_seed and not trials.diverged:
        return Part(NAMES[method], "not decided", numbers)
    return judged(NAMES[method], change, over(change, _RISE), numbers, diverged="not so")


def found(pool: Pooled, out: Path) -> Found:
    """What is proven and what was measured; the claims; the bounds over training; and the exact inequality."""
    rows = []
    for method, proven in BOUNDS.items():
        seen = [_told(pool(method), key) for key in _KEYS.values()]
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
        return [_rises(method, pool(method), _KEYS[bound]) for method in said]

    worst = max(x.code - x.projections for x in exact)
    nearest = max(x.code / x.projections for x in exact)
    numbers = f"in all {len(exact)} cases, at most {nearest:.4f} of it" if worst <= 0 else f"passed by {worst:.2g} nats"
    return [
        Claim("The ER bound rises in every method", parts("er")),
        Claim("The InfoNCE bound rises where the paper calls it maximised (CMC; approximately IR, MoCo)", parts("infonce")),
        Claim("I(Z1; W2) <= I(Z1; Z2)", [Part("normal pairs", "so" if worst <= 0 else "not so", numbers)]),
    ]


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    """A panel for each method."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.8, 4.2), layout="constrained")
        axes = figure.subplots(2, 4, sharex=True)
        for axis, method in zip(axes.flat, BOUNDS, strict=True):
            trials = pool(method)
            draw(axis, trials, _KEYS["er"], looks, color=BLUE, label="ER bound")
            dashed: dict[str, Any] = {"color": ORANGE, "linestyle": "--"}  # the two may lie on one another
            draw(axis, trials, _KEYS["infonce"], looks, label="InfoNCE bound", **dashed)
            if not trials.runs:
                say_why_empty(axis, [trials])
            else:
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
                if not has_codes(trials):
                    ceiling: dict[str, Any] = {"color": ORANGE, "linestyle": ":", "marker": None}
                    draw(axis, trials, "held_out_infonce_ceiling", looks, label="InfoNCE bound's ceiling", **ceiling)
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
