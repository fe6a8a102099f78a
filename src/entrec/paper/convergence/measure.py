"""Monte Carlo with its errors, and the power laws fitted to it."""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator


@dataclass(frozen=True)
class Measured:
    """Bias and variance of an estimator at one setting, each with its standard error."""

    x: float
    bias: float
    bias_se: float
    variance: float
    variance_se: float
    repeats: int
    predicted: float | None = None  # the closed form of what this point shows, if there is one

    @property
    def rmse(self) -> float:
        """Root of the mean squared error."""
        return math.sqrt(self.bias**2 + self.variance)


@dataclass(frozen=True)
class Curve:
    """One estimator along one axis."""

    label: str
    axis: str  # what x is: "k", "d", "width", "I"
    points: list[Measured]

    @property
    def last(self) -> Measured:
        """The point with the largest x."""
        return self.points[-1]


@dataclass(frozen=True)
class Slope:
    """The exponent of a power law, with its standard error."""

    exponent: float
    se: float

    def __str__(self) -> str:
        return f"{self.exponent:+.2f} ± {self.se:.2f}"

    def near(self, expected: float, tolerance: float = 0.15) -> bool:
        """Is this the expected exponent, within 3 standard errors or the tolerance that higher orders need?"""
        return abs(self.exponent - expected) <= max(3 * self.se, tolerance)


def generator(seed: int, name: str, device: str) -> Generator:
    """A stream of its own for each experiment, so that adding one does not change another."""
    return torch.Generator(device).manual_seed(seed * 1_000_003 + zlib.crc32(name.encode()))


def measure(draw: Callable[[], tuple[float, float]], x: float, repeats: int, predicted: float | None = None) -> Measured:
    """Repeat an estimate.

    Args:
        draw: one estimate and, beside it, its error: the estimate minus something whose expectation is the truth. Minus the
            truth itself always works; minus an unbiased estimate from the same sample has far less noise.
        x: where on its axis this point stands.
        repeats: how often.
        predicted: the closed form.
    """
    values, errors = torch.tensor([draw() for _ in range(repeats)], dtype=torch.float64).T
    variance = float(values.var())
    spread = (values - values.mean()).square()
    return Measured(
        x=float(x),
        bias=float(errors.mean()),
        bias_se=float(errors.std()) / math.sqrt(repeats),
        variance=variance,
        variance_se=float(spread.std()) / math.sqrt(repeats),
        repeats=repeats,
        predicted=predicted,
    )


def predicted_slope(points: Sequence[Measured]) -> float:
    """The exponent of the closed form over the same points, which is the leading one only in the limit."""
    predicted = [abs(p.predicted) for p in points if p.predicted is not None]
    return _fit([p.x for p in points], predicted, [p.bias_se for p in points]).exponent


def bias_slope(points: Sequence[Measured]) -> Slope:
    """The exponent of |bias| in x."""
    return _fit([p.x for p in points], [abs(p.bias) for p in points], [p.bias_se for p in points])


def variance_slope(points: Sequence[Measured]) -> Slope:
    """The exponent of the variance in x."""
    return _fit([p.x for p in points], [p.variance for p in points], [p.variance_se for p in points])


def _fit(xs: Sequence[float], ys: Sequence[float], errors: Sequence[float]) -> Slope:
    """Weighted least squares of log y on log x; the weights are the points' relative precisions."""
    x = torch.tensor(xs, dtype=torch.float64).log()
    y = torch.tensor(ys, dtype=torch.float64)
    # A point whose error exceeds its value says nothing about a logarithm: the floor keeps exact points from taking over.
    relative = (torch.tensor(errors, dtype=torch.float64) / y).clamp_min(0.005)
    weight = relative**-2
    center = (weight * x).sum() / weight.sum()
    spread = (weight * (x - center) ** 2).sum()
    return Slope(float((weight * (x - center) * y.log()).sum() / spread), float(spread**-0.5))
