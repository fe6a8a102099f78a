"""The figures of the study; a panel is a function of the study and the axes it draws on."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from entrec.paper.convergence.calibration import PAIRS
from entrec.paper.convergence.measure import Curve
from entrec.paper.convergence.study import Study
from entrec.paper.drawing import BLUE, GREEN, ORANGE, RED

PURPLE, GREY = "#CC79A7", "#777777"
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "axes.titlesize": 9.5,
}
Panel = Callable[[Study, Axes], None]


def draw(study: Study, folder: Path) -> list[Path]:
    """Draw every figure into the folder; returns the paths."""
    rules = [_rules_panel(i) for i in range(len(study.entropy.rules))]
    figures: dict[str, Sequence[Panel]] = {
        "overview": (joe_against_k, joe_against_width, rules[1], reconstruction, discrete, calibration_low),
        "joe": (joe_against_k, joe_against_width, smoothing, joe_against_dimension),
        "bandwidth": (*rules, plugin),
        "discrete": (discrete, discrete_dimension),
        "reconstruction": (reconstruction, reconstruction_cube),
        "calibration": (calibration_low, calibration_high),
    }
    with mpl.rc_context(_STYLE):
        return [_save(study, panels, folder / f"{name}.png") for name, panels in figures.items()]


def _save(study: Study, panels: Sequence[Panel], path: Path) -> Path:
    columns = 3 if len(panels) > 4 else 2
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(3.9 * columns, 3.1 * rows), layout="constrained")
    for panel, ax in zip(panels, figure.subplots(rows, columns, squeeze=False).flat, strict=True):
        panel(study, ax)
    figure.savefig(path, dpi=150)
    return path


def joe_against_k(study: Study, ax: Axes) -> None:
    """The size of Joe's bias on the uniform sphere S^2: leave-one-out and with the self term."""
    without, with_self = study.entropy.sphere_k[3]
    _bias(ax, without, BLUE, "leave-one-out (bias > 0)")
    _bias(ax, with_self, RED, "with the self term (bias < 0)")
    _finish(ax, "Joe's estimate, uniform on $S^2$; lines: closed form", "samples k", "|bias| in nats", log=True)


def joe_against_width(study: Study, ax: Axes) -> None:
    """Joe's leave-one-out bias against the kernel's width: the exponent is minus the intrinsic dimension."""
    for (dim, curve), colour in zip(study.entropy.sphere_width.items(), (BLUE, ORANGE, GREEN), strict=True):
        _bias(ax, curve, colour, f"$S^{{{dim - 1}}}$, exponent -{dim - 1}")
    title = "Leave-one-out, uniform; lines: closed form"
    _finish(ax, title, r"kernel width $\kappa^{-1/2}$", "bias in nats", log=True)


def smoothing(study: Study, ax: Axes) -> None:
    """Joe's bias for many samples on a Gaussian, against h."""
    for (dim, curve), colour in zip(study.entropy.smoothing.items(), (BLUE, ORANGE), strict=False):
        _bias(ax, curve, colour, f"Gaussian in $R^{dim}$")
    _finish(ax, r"Joe's estimate; line: closed form, $\to h^4$", "bandwidth h", "bias in nats", log=True)


def joe_against_dimension(study: Study, ax: Axes) -> None:
    """Joe's bias on the uniform sphere at the paper's kappa of 10, against the dimension."""
    without, with_self = study.entropy.dimension
    for curve, colour in ((without, BLUE), (with_self, RED)):
        x = [p.x for p in curve.points]
        ax.plot(x, [p.bias for p in curve.points], "o", color=colour, ms=4, label=curve.label)
        ax.plot(x, [p.predicted or 0.0 for p in curve.points], "-", color=colour, lw=1, alpha=0.7)
    ax.set_xscale("log")
    _plain_ticks(ax, x)
    _finish(ax, r"Joe's estimate, uniform, $\kappa$ = 10, k = 1000", "dimension d", "bias in nats")


def _rules_panel(index: int) -> Panel:
    narrow = r"h $\propto k^{-1/(d+1/2)}$"

    def panel(study: Study, ax: Axes) -> None:
        rules = study.entropy.rules[index]
        for curve, colour, label in (
            (rules.fixed, GREY, "h = 1"),
            (rules.narrow, ORANGE, narrow),
            (rules.narrow_self, RED, f"{narrow}, self term"),
            (rules.balanced, BLUE, r"h $\propto k^{-1/(d+4)}$"),
        ):
            _line(ax, curve, [p.rmse for p in curve.points], colour, label)
        _finish(ax, f"Joe's estimate, {_tex(rules.distribution.name)}", "samples k", "RMSE in nats", log=True)
        ax.set_ylim(bottom=ax.get_ylim()[0] / 6)  # room for the legend below the curves
        ax.legend(loc="lower left")

    return panel


def plugin(study: Study, ax: Axes) -> None:
    """The plug-in's bias against k, with the limit it goes to."""
    for rules, colour in zip(study.entropy.rules, (BLUE, ORANGE, GREEN, PURPLE, RED), strict=True):
        curve, distribution = rules.plugin, rules.distribution
        _line(ax, curve, [p.bias for p in curve.points], colour, _tex(distribution.name))
        ax.axhline(distribution.plugin_limit - distribution.entropy, color=colour, lw=0.8, ls="--")
    ax.axhline(0, color="black", lw=0.8)
    ax.set_xscale("log")
    _plain_ticks(ax, [p.x for p in curve.points])
    ax.set_ylim(top=0.75)
    _finish(ax, "Plug-in: goes not to 0 but to the dashed limits", "samples k", "bias in nats")
    ax.legend(loc="upper left", ncols=2)


def reconstruction(study: Study, ax: Axes) -> None:
    """The reconstruction's variance on the sphere, with both bounds."""
    _variance(study, ax, (0, 1), r"Reconstruction on $S^2$, $\kappa$ = 10", r"$\kappa^2/k$", r"paper's $\kappa^2/4k$")


def reconstruction_cube(study: Study, ax: Axes) -> None:
    """The reconstruction's variance in the cube, with both bounds."""
    title = r"Reconstruction in $[-1,1]^4$, $\sigma$ = 1"
    _variance(study, ax, (2, 3), title, r"$d^2/k\sigma^4$", r"paper's $d/2k\sigma^2$")


def _variance(study: Study, ax: Axes, cases: tuple[int, int], title: str, bound: str, paper: str) -> None:
    for index, colour in zip(cases, (BLUE, ORANGE), strict=True):
        case = study.reconstruction[index]
        x = [p.x for p in case.curve.points]
        y, error = [p.variance for p in case.curve.points], [p.variance_se for p in case.curve.points]
        ax.errorbar(x, y, error, fmt="o", color=colour, ms=4, label=case.curve.label.split(", ", 1)[1])
    ax.plot(x, [case.bound / k for k in x], "-", color="black", lw=1, label=f"{bound} = (range of log q)²/4k")
    ax.plot(x, [case.paper_bound / k for k in x], "--", color=RED, lw=1, label=paper)
    _finish(ax, title, "samples k", "variance", log=True)
    ax.set_ylim(bottom=ax.get_ylim()[0] / 10)
    ax.legend(loc="lower left")


def discrete(study: Study, ax: Axes) -> None:
    """The discrete plug-in's bias against k."""
    curves = study.discrete
    for curve, colour in ((curves.chunked, RED), (curves.one_hot, BLUE), (curves.soft, GREEN)):
        _bias(ax, curve, colour, curve.label)
    _finish(ax, "Discrete plug-in; lines: closed form", "samples k", "minus the bias in nats", log=True)


def discrete_dimension(study: Study, ax: Axes) -> None:
    """The discrete plug-in's bias against d."""
    _bias(ax, study.discrete.dimension, BLUE, study.discrete.dimension.label)
    _finish(ax, "Discrete plug-in; line: closed form", "classes d", "minus the bias in nats", log=True)


def calibration_low(study: Study, ax: Axes) -> None:
    """The bounds against the true information in 2 dimensions."""
    _calibration(study, ax, 2)


def calibration_high(study: Study, ax: Axes) -> None:
    """The bounds against the true information in 10 dimensions."""
    _calibration(study, ax, 10)


def _calibration(study: Study, ax: Axes, dim: int) -> None:
    x = [p.x for p in study.calibration[dim][0].points]
    for curve, colour, marker in zip(study.calibration[dim], (GREEN, BLUE, RED, PURPLE), "osd^", strict=True):
        ax.plot(x, [p.x + p.bias for p in curve.points], marker + "-", color=colour, ms=4, lw=1, label=curve.label)
    ax.plot(x, x, color="black", lw=0.8, label="I itself")
    ax.axhline(math.log(PAIRS), color=GREY, lw=0.8, ls="--")
    ax.annotate("log k", (x[-1], math.log(PAIRS)), xytext=(0, 3), textcoords="offset points", color=GREY, fontsize=7.5)
    ax.set_ylim(-2.5, 12.5)
    _finish(ax, f"Bounds on I, Gaussian pairs in $R^{{{dim}}}$, k = {PAIRS}", "true I in nats", "estimate in nats")


def _line(ax: Axes, curve: Curve, y: list[float], colour: str, label: str) -> None:
    ax.plot([p.x for p in curve.points], y, "o-", color=colour, ms=4, lw=1, label=label)


def _bias(ax: Axes, curve: Curve, colour: str, label: str) -> None:
    x = [p.x for p in curve.points]
    y, error = [abs(p.bias) for p in curve.points], [p.bias_se for p in curve.points]
    ax.errorbar(x, y, error, fmt="o", color=colour, ms=4, label=label)
    ax.plot(x, [abs(p.predicted or 0.0) for p in curve.points], "-", color=colour, lw=1, alpha=0.7)


def _finish(ax: Axes, title: str, x: str, y: str, log: bool = False) -> None:
    if log:
        ax.set_xscale("log")
        ax.set_yscale("log")
        drawn = [np.asarray(line.get_xdata(), dtype=float) for line in ax.get_lines()]
        _plain_ticks(ax, np.unique(np.concatenate(drawn)).tolist())
    ax.set_title(title, loc="left")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.legend()


def _plain_ticks(ax: Axes, x: Sequence[float]) -> None:
    """Ticks where the measurements are, in plain numbers."""
    ax.set_xticks(list(x), [f"{value:g}" for value in x])
    ax.xaxis.set_minor_locator(NullLocator())


def _tex(name: str) -> str:
    """R^5 and S^9 as superscripts."""
    head, _, power = name.rpartition("^")
    return f"{head[:-1]}${head[-1]}^{{{power}}}$"
