"""Joe's and the plug-in estimate of the entropy against k, d and the kernel's width."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Generator, Tensor

from entrec import Density, kde_log_density
from entrec.estimators.entropy import joe, plugin
from entrec.paper.convergence.distributions import (
    VMF,
    Distribution,
    StandardGaussian,
    UniformSphere,
    smoothing_bias,
    uniform_sphere_bias,
)
from entrec.paper.convergence.measure import Curve, Measured, generator, measure

EntropyOf = Callable[[Tensor], Tensor]  # of the log-densities at the points


@dataclass(frozen=True)
class EntropyCurves:
    """What was measured, by experiment."""

    sphere_k: dict[int, tuple[Curve, Curve]]  # by d: leave-one-out, with the self term
    sphere_width: dict[int, Curve]
    smoothing: dict[int, Curve]
    rules: list["RuleCurves"]
    dimension: tuple[Curve, Curve]


@dataclass(frozen=True)
class RuleCurves:
    """One distribution under the bandwidth rules; the biases are from its entropy."""

    distribution: Distribution
    fixed: Curve  # h = 1
    narrow: Curve  # h ~ k^(-1/(d + 1/2)), the paper's condition with a small epsilon
    narrow_self: Curve  # the same with the self term, as the paper has it
    balanced: Curve  # h ~ k^(-1/(d + 4))
    plugin: Curve  # the plug-in under the balanced rule


def run(quick: bool, seed: int, device: str, progress: Callable[[str], None]) -> EntropyCurves:
    """All curves; `progress` hears the name of each part as it starts."""
    dims = (2, 3, 5)
    progress("Joe's bias against k, uniform sphere")
    sphere_k = {d: _against_k(UniformSphere(d), quick, generator(seed, f"sphere k {d}", device)) for d in dims}
    progress("Joe's bias against the kernel's width, uniform sphere")
    sphere_width = {d: _against_width(d, quick, generator(seed, f"sphere width {d}", device)) for d in dims}
    progress("Joe's smoothing bias against h, Gaussian")
    smoothing = {d: _smoothing(d, quick, generator(seed, f"smoothing {d}", device)) for d in ((1,) if quick else (1, 2))}
    rules = []
    distributions: list[Distribution] = [*map(StandardGaussian, (1, 2, 5)), VMF(3, 10.0), VMF(10, 10.0)]
    for distribution in distributions:
        progress(f"bandwidth rules, {distribution.name}")
        rules.append(_rules(distribution, quick, generator(seed, f"rules {distribution.name}", device)))
    progress("against the dimension, kappa = 10")
    dimension = _against_dimension(quick, generator(seed, "dimension", device))
    return EntropyCurves(sphere_k, sphere_width, smoothing, rules, dimension)


def _rules(distribution: Distribution, quick: bool, stream: Generator) -> RuleCurves:
    intrinsic = distribution.dim - 1 if distribution.kernel(1.0).on_sphere else distribution.dim
    sizes = {64: 200, 256: 80, 1024: 16} if quick else {64: 2000, 256: 1000, 1024: 200, 4096: 40}

    def curve(label: str, epsilon: float | None, leave_one_out: bool = True, estimator: EntropyOf = joe) -> Curve:
        points = []
        for k, repeats in sizes.items():
            width = 1.0 if epsilon is None else distribution.width * k ** (-1 / (intrinsic + epsilon))
            draw = _draw(distribution, distribution.kernel(width), estimator, k, leave_one_out, stream)
            points.append(measure(draw, k, repeats))
        return Curve(label, "k", points)

    return RuleCurves(
        distribution,
        fixed=curve("h = 1", None),
        narrow=curve("h ~ k^(-1/(d+1/2))", 0.5),
        narrow_self=curve("h ~ k^(-1/(d+1/2)), self term", 0.5, leave_one_out=False),
        balanced=curve("h ~ k^(-1/(d+4))", 4.0),
        plugin=curve("plug-in, h ~ k^(-1/(d+4))", 4.0, estimator=plugin),
    )


def _against_k(distribution: UniformSphere, quick: bool, stream: Generator) -> tuple[Curve, Curve]:
    width = 0.2 if distribution.dim < 5 else 0.4
    sizes = (
        {128: 250, 256: 150, 512: 80, 1024: 40, 2048: 12} if quick else {256: 1000, 512: 1000, 1024: 500, 2048: 200, 4096: 100}
    )
    curves = []
    for leave_one_out, label in ((True, "leave-one-out"), (False, "with the self term")):
        points = [_joe_point(distribution, width, k, repeats, leave_one_out, stream, float(k)) for k, repeats in sizes.items()]
        curves.append(Curve(label, "k", points))
    return curves[0], curves[1]


def _against_width(dim: int, quick: bool, stream: Generator) -> Curve:
    widths = (0.15, 0.2, 0.3, 0.4) if dim < 5 else (0.3, 0.35, 0.4, 0.5)
    k, repeats = (1024, 32) if quick else (4096, 80)
    points = [_joe_point(UniformSphere(dim), w, k, repeats, True, stream, w) for w in widths]
    return Curve(f"uniform on S^{dim - 1}, k = {k}", "width", points)


def _joe_point(
    distribution: UniformSphere, width: float, k: int, repeats: int, leave_one_out: bool, stream: Generator, x: float
) -> Measured:
    predicted = uniform_sphere_bias(distribution.dim, width, k, leave_one_out)
    draw = _draw(distribution, distribution.kernel(width), joe, k, leave_one_out, stream)
    return measure(draw, x, repeats, predicted)


def _smoothing(dim: int, quick: bool, stream: Generator) -> Curve:
    """The limit of many samples: points scored by an independent reference of m, as leave-one-out does with k = m + 1."""
    distribution = StandardGaussian(dim)
    points, m, repeats = (1024, 16384, 6) if quick else (2048, 32768, 40)

    def draw(h: float) -> tuple[float, float]:
        z, reference = distribution.sample(points, stream), distribution.sample(m, stream)
        estimate = joe(kde_log_density(z, distribution.kernel(h), reference))
        # Its expectation is zero, and it is most of the sample's noise: log p moves by h^2/2 (|z|^2 - d) to first order.
        noise = h * h / 2 * (z.square().sum(dim=-1) - dim).mean()
        return float(estimate), float(estimate + distribution.log_prob(z).mean() + noise)

    widths = (0.3, 0.4, 0.5, 0.6)
    measured = [measure(partial(draw, h), h, repeats, smoothing_bias(dim, h)) for h in widths]
    return Curve(f"Gaussian in R^{dim}", "width", measured)


def _against_dimension(quick: bool, stream: Generator) -> tuple[Curve, Curve]:
    k, repeats = (1000, 6) if quick else (1000, 60)
    curves = []
    for leave_one_out, label in ((True, "leave-one-out"), (False, "with the self term")):
        points = [
            _joe_point(UniformSphere(d), 10**-0.5, k, repeats, leave_one_out, stream, float(d))
            for d in (3, 10, 32, 128, 512, 2048)
        ]
        curves.append(Curve(label, "d", points))
    return curves[0], curves[1]


def _draw(
    distribution: Distribution,
    kernel: Density,
    estimator: EntropyOf,
    k: int,
    leave_one_out: bool,
    stream: Generator,
) -> Callable[[], tuple[float, float]]:
    """One estimate and its error; the error is taken from the same sample's mean of -log p, whose expectation is H."""

    def draw() -> tuple[float, float]:
        z = distribution.sample(k, stream)
        estimate = estimator(kde_log_density(z, kernel, leave_one_out=leave_one_out))
        return float(estimate), float(estimate + distribution.log_prob(z).mean())

    return draw
