"""The bounds against a known mutual information: pairs of correlated Gaussians."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from entrec import Gaussian, er_bound, infonce_bound, reconstruction
from entrec.paper.convergence.measure import Curve, Measured, generator, measure

PAIRS = 1000
EXACT = "ER, exact entropy"
INFORMATION = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)


def run(quick: bool, seed: int, device: str) -> dict[int, list[Curve]]:
    """By dimension: four estimates of each mutual information, all with the true conditional for q."""
    return {
        dim: [
            Curve(label, "I", [_point(estimate, dim, i, _repeats(label, quick), seed, device) for i in INFORMATION])
            for label, estimate in _ESTIMATES.items()
        ]
        for dim in (2, 10)
    }


def _repeats(label: str, quick: bool) -> int:
    if label == EXACT:  # cheap, and held to a law: its standard errors must be good ones
        return 200
    return 8 if quick else 100


def correlated_pairs(k: int, dim: int, rho: float, stream: Generator) -> tuple[Tensor, Tensor]:
    """Z2 ~ N(0, I) and the mean of Z2 given Z1, for (Z1, Z2) with correlation rho in each coordinate, mean first."""
    mean, noise = torch.randn(2, k, dim, generator=stream, device=stream.device)
    return rho * mean, rho * mean + math.sqrt(1 - rho**2) * noise


def correlation(dim: int, information: float) -> float:
    """The rho at which I = -d/2 log(1 - rho^2)."""
    return math.sqrt(-math.expm1(-2 * information / dim))


def _point(
    estimate: Callable[[Tensor, Tensor, Gaussian], float], dim: int, information: float, repeats: int, seed: int, device: str
) -> Measured:
    rho = correlation(dim, information)
    stream = generator(seed, f"calibration {dim} {information}", device)  # the same pairs for every estimate

    def draw() -> tuple[float, float]:
        value = estimate(*correlated_pairs(PAIRS, dim, rho, stream), Gaussian(math.sqrt(1 - rho**2)))
        return value, value - information

    return measure(draw, information, repeats)


def _exact_entropy(z1: Tensor, z2: Tensor, q: Gaussian) -> float:
    return float(Gaussian(1.0).entropy(z2.shape[-1]) + reconstruction(z2, z1, q))


def _kernel_entropy(z1: Tensor, z2: Tensor, q: Gaussian, leave_one_out: bool) -> float:
    return float(er_bound(z1, z2, q, leave_one_out=leave_one_out).value)


_ESTIMATES: dict[str, Callable[[Tensor, Tensor, Gaussian], float]] = {
    EXACT: _exact_entropy,
    "ER, leave-one-out": partial(_kernel_entropy, leave_one_out=True),
    "ER, with the self term": partial(_kernel_entropy, leave_one_out=False),
    "InfoNCE": lambda z1, z2, q: float(infonce_bound(z1, z2, q)),
}
