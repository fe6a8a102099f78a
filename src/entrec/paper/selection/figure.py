"""The ER bound of runs against their linear probes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

_COLOURS = {
    "healthy": "#0072B2",
    "weak": "#009E73",
    "saturated": "#56B4E9",
    "collapsed": "#D55E00",
    "uninformative": "#E69F00",
    "low rank": "#CC79A7",
}
_OTHER = "#000000"


def scatter(points: Sequence[tuple[str, float, float, bool, str]], untrained: float, path: Path) -> None:
    """One point for each run (name, bound, probe, codes, verdict): round on the sphere, square for codes; SVG and PNG."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axis = figure.subplots()
    seen: set[str] = set()
    for _, bound, linear, codes, verdict in points:
        label = verdict if verdict not in seen else None
        seen.add(verdict)
        axis.scatter(bound, 100 * linear, marker="s" if codes else "o", s=28, color=_COLOURS.get(verdict, _OTHER), label=label)
    axis.axhline(100 * untrained, color="#888888", linewidth=0.8, linestyle="--")
    axis.annotate(
        "untrained", (0, 100 * untrained), (4, 3), ("axes fraction", "data"), "offset points", color="#666666", fontsize=8
    )
    axis.set(xlabel="ER bound on held-out views (nats)", ylabel="linear probe (%)")
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9, title="the lens says")
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=160)
