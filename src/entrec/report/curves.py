"""Curves of runs over their epochs: the two terms of the bound, what the lens saw, and accuracy."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from entrec.report.chart import Kind, Line, chart
from entrec.report.known import Known, whereof
from entrec.report.style import Look, look_of


class Panel(NamedTuple):
    """One chart.

    Args:
        key: the column of metrics.csv.
        title: of the chart; `{whereof}` stands for the images that the lens looked at.
        kind: of its axis.
        ceiling: the column of what the number comes to at best.
        alike: whether only runs with the same kernel and dimensions can share an axis.
    """

    key: str
    title: str
    kind: Kind = "plain"
    ceiling: str = ""
    alike: bool = False


_PANELS = (
    Panel("held_out_entropy", "Entropy, {whereof} (0: one point, 1: evenly spread)", "share"),
    Panel("held_out_er_bound", "ER bound, {whereof} (nats)", ceiling="held_out_er_ceiling"),
    Panel("held_out_infonce_bound", "InfoNCE bound, {whereof} (nats)", ceiling="held_out_infonce_ceiling"),
    Panel("knn_top1", "kNN accuracy (%)", "percent"),
    Panel("probe_top1", "Online probe's accuracy (%)", "percent"),
    Panel("effective_rank", "Effective rank, {whereof}"),
    Panel("er_bound", "ER bound, in training (nats)"),
    Panel("entropy", "Entropy, in training (nats)", alike=True),
    Panel("reconstruction", "Reconstruction, in training (nats)", alike=True),
)
_SCALE = ("dim", "bottleneck", "codes", "prototypes", "clusters", "kappa")  # settings on which an entropy in nats depends
_CEILING, _THIN = "2 2", 0.9


def curves(runs: Sequence[Known]) -> str:
    """A chart for each number that was measured; what belongs to run number i is a group whose name begins with `run<i>-`."""
    found = "".join(_drawn(panel, runs) for panel in _PANELS)
    return f"<div class='grid'>{found}</div>" if found else "<p>There are no numbers yet to draw.</p>"


def has_ceilings(runs: Sequence[Known]) -> bool:
    """Whether the charts show any."""
    return any(panel.ceiling in row for panel in _PANELS if panel.ceiling for run in runs for row in run.rows)


def _drawn(panel: Panel, runs: Sequence[Known]) -> str:
    shown = {number: run for number, run in enumerate(runs) if any(panel.key in row for row in run.rows)}
    groups = list(_groups(shown)) if panel.alike else [shown]
    return "".join(_chart(panel, group, named=len(groups) > 1) for group in groups)


def _groups(runs: Mapping[int, Known]) -> Iterator[dict[int, Known]]:
    """Runs whose entropies in nats have the same floor and ceiling."""
    scales = {number: tuple(run.config.get(key) for key in _SCALE) for number, run in runs.items()}
    for scale in dict.fromkeys(scales.values()):
        yield {number: run for number, run in runs.items() if scales[number] == scale}


def _chart(panel: Panel, runs: Mapping[int, Known], named: bool) -> str:
    whose = f": {', '.join(run.name for run in runs.values())}" if named else ""
    title = panel.title.format(whereof=whereof(list(runs.values())))
    return chart(title + whose, [line for pair in runs.items() for line in _lines(panel, *pair)], panel.kind)


def _lines(panel: Panel, number: int, run: Known) -> Iterator[Line]:
    """A run's curve, and above it a thin line of short dashes: what it cannot pass."""
    look, ident = look_of(number), f"run{number}-{panel.key}"
    times = 100.0 if panel.kind == "percent" else 1.0
    yield Line(ident, run.name, _series(run, panel.key, times), look)
    ceiling = _series(run, panel.ceiling)
    if ceiling:
        yield Line(f"{ident}-ceiling", f"{run.name}, the ceiling", ceiling, Look(look.colour, _CEILING), _THIN)


def _series(run: Known, key: str, times: float = 1.0) -> list[tuple[float, float]]:
    """The mean of each epoch's rows, at the epoch's end."""
    by_epoch: dict[int, list[float]] = {}
    for row in run.rows:
        if key in row:
            by_epoch.setdefault(int(row["epoch"]), []).append(row[key])
    return [(epoch + 1, times * sum(values) / len(values)) for epoch, values in by_epoch.items()]
