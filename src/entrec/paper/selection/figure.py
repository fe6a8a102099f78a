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
    figure = Figure(figsize=(7.0, 3.8), layout="constrained")
    axis = figure.subplots()
    for verdict, colour in {**_COLOURS, **{x[4]: _OTHER for x in points if x[4] not in _COLOURS}}.items():
        for codes, marker in ((False, "o"), (True, "s")):
            drawn = [(bound, 100 * linear) for _, bound, linear, on, own in points if (on, own) == (codes, verdict)]
            if drawn:
                x, y = zip(*drawn, strict=True)
                axis.scatter(x, y, marker=marker, s=28, color=colour, label=verdict + ", codes" * codes)
    axis.axhline(100 * untrained, color="#888888", linewidth=0.8, linestyle="--")
    where: tuple[str, str] = ("axes fraction", "data")
    axis.annotate("untrained", (1, 100 * untrained), (-4, 3), where, "offset points", ha="right", color="#555555", fontsize=8)
    axis.set(xlabel="ER bound on held-out views (nats)", ylabel="linear probe (%)")
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8, title="the lens says", title_fontsize=9)
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=160)
