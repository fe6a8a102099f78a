"""The extended table: also CMC, no EMA, and a continuous entropy for DINO."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from entrec.paper.drawing import BLACK, BLUE, STYLE, save
from entrec.paper.grid.claims import ENOUGH, Claim, above
from entrec.paper.grid.experiment import Experiment, Found, Table, Wanted
from entrec.paper.grid.presets import SMALL, Preset
from entrec.paper.grid.published import EXTENDED
from entrec.paper.grid.setting import NAMES, Setting
from entrec.paper.grid.trials import Pooled

ROWS = (
    Setting("dino"),
    Setting("dino", er=True, ema=None, estimator="plugin"),
    Setting("dino", er=True, estimator="plugin"),
    Setting("byol"),
    Setting("byol", er=True, ema=None),
    Setting("byol", er=True),
    Setting("cmc"),
    Setting("simclr"),
    Setting("simclr", er=True),
)
_TEACHERS, _CONTRASTIVE = ("dino", "byol"), ("cmc", "simclr")


def wanted(preset: Preset) -> Wanted:
    """Each row at the base batch and at the small one."""
    return Wanted([*ROWS, *(replace(row, fraction=SMALL) for row in ROWS)], [])


def _has_ema(row: Setting) -> bool:
    return row.method in _TEACHERS and row.ema is not None


def found(pool: Pooled, out: Path) -> Found:
    """The table, the claims, and a line from the base to the small batch for each row."""
    small = pool.preset.batch // SMALL
    rows = []
    for row in ROWS:
        paper = EXTENDED[row.method, row.er, _has_ema(row)]
        base = pool(row).accuracy
        drop = base - pool(replace(row, fraction=SMALL)).accuracy
        ema = "yes" if _has_ema(row) else "no"
        rows.append([row.label, ema, base.shown(beside=paper.accuracy), drop.shown(beside=paper.batch)])
    note = (
        "Linear probe in percent, and the points that it drops by; continuous entropies, also DINO's. In brackets the paper's "
        "(ImageNet, batch 4096 and 512)."
    )
    table = Table(
        "Accuracy, and its drop in the small batch",
        ["", "EMA", "accuracy [paper]", f"drop at batch {small} [paper]"],
        rows,
        note,
    )
    return Found([table], _claims(pool), _figure(pool, out / "extended"))


def _claims(pool: Pooled) -> list[Claim]:
    ema = []
    for method, estimator in (("dino", "plugin"), ("byol", None)):
        with_ema = pool(method, er=True, estimator=estimator).accuracy
        without = pool(method, er=True, ema=None, estimator=estimator).accuracy
        numbers = f"{with_ema.shown()} with and {without.shown()} without EMA"
        ema.append(above(f"{NAMES[method]}+ER", with_ema - without, numbers))
    drops = {method: pool(method).accuracy - pool(method, fraction=SMALL).accuracy for method in (*_TEACHERS, *_CONTRASTIVE)}
    steadier = []
    for method in _CONTRASTIVE:
        for other in _TEACHERS:
            less = drops[other] - drops[method]
            numbers = f"drops {drops[method].shown()} and {drops[other].shown()}, {less.shown()} less"
            steadier.append(above(f"{NAMES[method]} and {NAMES[other]}", less, numbers))
    return [
        Claim("Distillation with ER needs the EMA to perform well", ema),
        Claim("Contrastive methods drop less in the small batch than distillation without ER", steadier),
    ]


def _named(row: Setting) -> str:
    words = [row.label, *(["continuous"] if row.estimator else [])]
    return ", ".join([*words, *(["no EMA"] if row.method in _TEACHERS and not _has_ema(row) else [])])


def _fewest(pool: Pooled, row: Setting) -> int:
    """Seeds of its two points, of those that are there."""
    seeds = [len(pool(x).runs) for x in (row, replace(row, fraction=SMALL))]
    return min((x for x in seeds if x), default=ENOUGH)


def _figure(pool: Pooled, path: Path) -> list[tuple[Path, str]]:
    """Two points a row: the base and the small batch."""
    names = [_named(row) + (" *" if _fewest(pool, row) < ENOUGH else "") for row in ROWS]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.0, 3.2), layout="constrained")
        axis = figure.subplots()
        labels = [f"batch {pool.preset.batch}", f"batch {pool.preset.batch // SMALL}"]
        for place, row in enumerate(ROWS):
            colour = BLUE if row.er else BLACK
            both = [pool(row).accuracy, pool(replace(row, fraction=SMALL)).accuracy]
            if all(x.by_seed for x in both):
                axis.plot([x.mean for x in both], [place - 0.12, place + 0.12], color=colour, linewidth=1.2, alpha=0.6)
            for measured, fill, beside in zip(both, (colour, "white"), (-0.12, 0.12), strict=True):  # bars may overlap
                if measured.by_seed:
                    axis.errorbar(
                        measured.mean, place + beside, xerr=measured.deviation if len(measured.by_seed) > 1 else None, fmt="o",
                        color=colour, markerfacecolor=fill, markersize=5, capsize=2,
                    )  # fmt: skip
        axis.scatter([], [], color=BLACK, label=labels[0])
        axis.scatter([], [], facecolor="white", edgecolor=BLACK, label=labels[1])
        axis.set_yticks(range(len(ROWS)), names)
        axis.invert_yaxis()
        few = any(name.endswith("*") for name in names)
        axis.set_xlabel("linear probe (%)" + (f"; * fewer than {ENOUGH} seeds somewhere" if few else ""))
        axis.grid(axis="y", visible=False)
        figure.legend(loc="outside upper center", ncols=2)
        save(figure, path)
    return [(path.with_suffix(".png"), "Linear probe at the base batch and at the small one")]


EXPERIMENT = Experiment("Extended results: CMC, no EMA, continuous entropies", wanted, found)
