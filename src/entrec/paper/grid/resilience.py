"""The main table: what a small batch and a fast teacher cost, with each method's own loss and with ER in its place."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from entrec.paper.drawing import BLACK, BLUE, GREY, STYLE, legend_of, save
from entrec.paper.grid.claims import ENOUGH, Claim, Part, State, at_most, judged, smaller_drop
from entrec.paper.grid.curves import say_why_empty
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.measured import Measured
from entrec.paper.grid.presets import LOW_EMA, SMALL, Preset
from entrec.paper.grid.published import MAIN
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Pooled

METHODS = ("dino", "byol", "simclr")
TEACHERS = ("dino", "byol")
_At = tuple[float, dict[str, float | None]]  # a place on an axis, and the setting there
_COMPETITIVE = 2.5  # points: the most that ER costs in the paper's own table is 2.2, for DINO


def wanted(preset: Preset) -> Wanted:
    """All methods with and without ER, in every batch; those with a teacher at every EMA."""
    bases = [Setting(method, er) for method in METHODS for er in (False, True)]
    taught = [base for base in bases if base.method in TEACHERS]
    claims = [*bases, *(replace(base, ema=LOW_EMA) for base in taught), *(replace(base, fraction=SMALL) for base in bases)]
    further = [replace(base, fraction=fraction) for fraction in preset.fractions for base in bases if fraction != SMALL]
    further += [replace(base, ema=ema) for ema in preset.emas for base in taught if ema != LOW_EMA]
    further += [replace(base, fraction=SMALL, rate_kept=True) for base in bases]
    return Wanted(claims, further)


def found(pool: Pooled, out: Path) -> Found:
    """The table, the claims, and accuracy against batch and EMA."""
    return Found([_table(pool)], _claims(pool), _figure(pool, out / "resilience"))


def _drop(pool: Pooled, setting: Setting) -> Measured:
    base = pool(replace(setting, fraction=1, rate_kept=False, ema="base"))
    return base.accuracy - pool(setting).accuracy


def _table(pool: Pooled) -> Table:
    preset = pool.preset
    columns = ["", "accuracy [paper]"]
    columns += [f"batch {preset.batch // x}{' [paper: 512]' if x == SMALL else ''}" for x in preset.fractions]
    columns += [f"batch {preset.batch // SMALL}, rate kept"]
    columns += ["no EMA" if ema is None else f"EMA {ema:g}{' [paper]' if ema == LOW_EMA else ''}" for ema in preset.emas]
    rows = []
    for base in (Setting(method, er) for method in METHODS for er in (False, True)):
        paper = MAIN[base.method, base.er]
        row = [base.label, pool(base).accuracy.shown(beside=paper.accuracy)]
        for fraction in preset.fractions:
            beside = paper.batch if fraction == SMALL else None
            row.append(_drop(pool, replace(base, fraction=fraction)).shown(beside=beside))
        row.append(_drop(pool, replace(base, fraction=SMALL, rate_kept=True)).shown())
        for ema in preset.emas:
            beside = paper.ema if ema == LOW_EMA else None
            has = base.method in TEACHERS
            row.append(_drop(pool, replace(base, ema=ema)).shown(beside=beside) if has else "-")
        rows.append(row)
    note = (
        f"Linear probe in percent at batch {preset.batch}, and how many points it drops by in a smaller batch and with a "
        "faster teacher, nothing else changed: the linear rule divides the learning rate with the batch, but where it is kept. "
        "Mean ± standard deviation (seeds). In brackets the paper's: ResNet-50 on ImageNet, 400 epochs, batch 4096."
    )
    return Table("Accuracy and what it drops by", columns, rows, note)


def _claims(pool: Pooled) -> list[Claim]:
    def parts(methods: tuple[str, ...], **change: float) -> list[Part]:
        return [
            smaller_drop(
                NAMES[method],
                (pool(method).accuracy, pool(method, **change).accuracy),
                (pool(method, True).accuracy, pool(method, True, **change).accuracy),
            )
            for method in methods
        ]

    return [
        Claim(f"ER drops less at EMA {LOW_EMA:g} than the original", parts(TEACHERS, ema=LOW_EMA)),
        Claim(f"ER drops less at 1/{SMALL} of the batch than the original", parts(METHODS, fraction=SMALL)),
        Claim(
            f"ER in place of the loss is competitive: it costs at most {_COMPETITIVE} points", [_cost(pool, x) for x in METHODS]
        ),
    ]


def _cost(pool: Pooled, method: str) -> Part:
    own, er = pool(method).accuracy, pool(method, True).accuracy
    cost = own - er
    against: State | None = "not so" if er.diverged else None  # and where the original diverged, the other seeds tell
    return judged(NAMES[method], cost, at_most(cost, _COMPETITIVE), f"costs {cost.shown(2)} points", diverged=against)


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    """Accuracy against the batch and against the EMA."""
    preset = pool.preset
    batches: list[_At] = [(preset.batch // x, {"fraction": x}) for x in (1, *sorted(preset.fractions))]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 2.5), layout="constrained")
        axes = figure.subplots(1, len(METHODS) + len(TEACHERS))
        for group in (axes[: len(METHODS)], axes[len(METHODS) :]):  # a fast teacher costs so much that batches would look alike
            for axis in group[1:]:
                axis.sharey(group[0])
                axis.tick_params(labelleft=False)
        for axis, method in zip(axes, METHODS, strict=False):
            _panel(axis, pool, method, batches)
            axis.set_xscale("log", base=2)
            axis.set_xticks([x for x, _ in batches], [str(x) for x, _ in batches])
            axis.minorticks_off()
            axis.set_xlim(batches[-1][0] / 1.4, batches[0][0] * 1.4)
            axis.set(title=NAMES[method], xlabel="batch size")
        for axis, method in zip(axes[len(METHODS) :], TEACHERS, strict=True):
            emas = _emas(preset, method)
            _panel(axis, pool, method, list(emas.values()))
            axis.set_xticks([x for x, _ in emas.values()], list(emas))
            axis.set_xlim(*_around([x for x, _ in emas.values()]))
            axis.set(title=NAMES[method], xlabel="EMA of the teacher")
        axes[0].set_ylabel("linear probe (%)")
        few = any(0 < len(pool(setting).runs) < ENOUGH for setting in wanted(preset).all)
        if few:
            axes[0].errorbar([], [], fmt="o", color=GREY, markerfacecolor="white", label=f"open: fewer than {ENOUGH} seeds")
        legend_of(figure, axes)
        save(figure, path)
    return [(path.with_suffix(".png"), "Linear probe against the batch size and the teacher's EMA")]


def _panel(axis: Axes, pool: Pooled, method: str, at: list[_At]) -> None:
    for er, colour, marker, label in ((False, BLACK, "s", "own loss"), (True, BLUE, "o", "ER")):
        drawn = sorted(((x, pool(method, er, **change).accuracy) for x, change in at), key=lambda point: point[0])
        if not any(accuracy.by_seed for _, accuracy in drawn):
            continue
        # Across a place without a run a whole line would be a guess.
        there = [(x, accuracy.mean) for x, accuracy in drawn if accuracy.by_seed]
        axis.plot(*zip(*there, strict=True), color=colour, linewidth=1.0, linestyle=":")
        axis.plot([x for x, _ in drawn], [accuracy.mean for _, accuracy in drawn], color=colour, linewidth=1.3)
        for fill, enough in ((colour, True), ("white", False)):
            own = [(x, y) for x, y in drawn if y.by_seed and (len(y.by_seed) >= ENOUGH) == enough]
            look = {"fmt": marker, "color": colour, "markerfacecolor": fill, "markersize": 4.5, "capsize": 2}
            errors = [y.deviation if len(y.by_seed) > 1 else 0.0 for _, y in own]
            axis.errorbar([x for x, _ in own], [y.mean for _, y in own], errors, **look)  # type: ignore[arg-type]
        axis.plot([], [], color=colour, marker=marker, markersize=4.5, linewidth=1.3, label=label)
    if not axis.containers:
        say_why_empty(axis, [pool(method, er, **change) for _, change in at for er in (False, True)])


def _around(places: list[float]) -> tuple[float, float]:
    """All of them with some room, also those that have no run yet."""
    room = 0.12 * (max(places) - min(places))
    return min(places) - room, max(places) + room


def _emas(preset: Preset, method: str) -> dict[str, _At]:
    """Places for the EMAs, the base's first; no EMA stands below all of them."""
    base = float(preset.options.get(method, {}).get("ema", 0.99))
    found: dict[str, _At] = {f"{base:g}": (base, {})}
    found |= {f"{ema:g}": (ema, {"ema": ema}) for ema in preset.emas if ema is not None}
    if None in preset.emas:
        below = min(x for x, _ in found.values()) - 0.2
        found["none"] = (below, {"ema": None})
    return found


EXPERIMENT = Experiment("Resilience: what a small batch and a fast teacher cost, with and without ER", wanted, found)
