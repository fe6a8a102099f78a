r"""The mutual information with a code of a projection, exactly: I(Z1; W2) <= I(Z1; Z2) where both are known.

A pair of standard normal numbers with correlation rho has :math:`I(Z_1; Z_2) = -\frac12 \log(1 - \rho^2)`. The code W2 is drawn
from p(w | z2); given Z1 = z1, Z2 is normal with mean rho z1 and variance 1 - rho^2, so that

.. math:: p(w \mid z_1) = E[p(w \mid Z_2) \mid Z_1 = z_1], \qquad I(Z_1; W_2) = H(W_2) - E[H(W_2 \mid Z_1)]

are integrals over a normal variable, here by the trapezoidal rule, whose error vanishes faster than any power of its step for
such integrands: a code's edges, which the noise of Z2 smooths, are as wide as ten steps at the largest correlation here.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from entrec.estimators.discrete import entropy_of_distribution

_FARTHEST, _STEPS = 9.0, 1200  # a normal number is beyond with probability 1e-19
CODES = (2, 4, 16, 64)
RHOS = (0.3, 0.6, 0.9, 0.99)


class Information(NamedTuple):
    """In nats: of the projections, and of one with the other's code."""

    rho: float
    codes: int
    kind: str
    projections: float
    code: float


def gaussian_information(rho: float) -> float:
    """I(Z1; Z2) of two normal numbers with this correlation, in nats."""
    return -0.5 * math.log1p(-rho * rho)


def code_information(rho: float, given: Callable[[Tensor, float], Tensor]) -> float:
    """I(Z1; W2) in nats.

    Args:
        rho: correlation of Z1 and Z2.
        given: p(w | z1) from means of Z2, shape (n,), and its standard deviation; shape (n, m).
    """
    nodes, weights = _normal_rule()
    conditional = given(rho * nodes, math.sqrt(1 - rho * rho))
    marginal = weights @ conditional
    return float(entropy_of_distribution(marginal) - weights @ entropy_of_distribution(conditional))


def quantised(codes: int) -> Callable[[Tensor, float], Tensor]:
    """W2: in which of m equally likely intervals Z2 lies."""
    inner = torch.arange(1, codes, dtype=torch.float64) / codes
    edges = torch.special.ndtri(inner)

    def given(mean: Tensor, deviation: float) -> Tensor:
        below = torch.special.ndtr((edges - mean[:, None]) / deviation)
        below = torch.nn.functional.pad(torch.nn.functional.pad(below, (1, 0), value=0.0), (0, 1), value=1.0)
        return below.diff(dim=1).clamp(min=0)

    return given


def softened(codes: int, temperature: float = 0.5) -> Callable[[Tensor, float], Tensor]:
    """W2: drawn from a softmax of minus the squared distances of Z2 to m centres, as a clustering head would."""
    centres = torch.special.ndtri((torch.arange(codes, dtype=torch.float64) + 0.5) / codes)

    def given(mean: Tensor, deviation: float) -> Tensor:
        nodes, weights = _normal_rule(100)  # of a softmax, which is smooth
        z2 = mean[:, None] + deviation * nodes
        probabilities = (-((z2[..., None] - centres) ** 2) / temperature).softmax(dim=-1)
        return torch.einsum("k,nkm->nm", weights, probabilities)

    return given


def table() -> list[Information]:
    """Both kinds of code, of several sizes, at several correlations."""
    kinds = (("quantised", quantised), ("softmax", softened))
    return [
        Information(rho, codes, kind, gaussian_information(rho), code_information(rho, make(codes)))
        for rho in RHOS
        for kind, make in kinds
        for codes in CODES
    ]


def _normal_rule(steps: int = _STEPS) -> tuple[Tensor, Tensor]:
    """Places and weights whose sum is a standard normal's expectation."""
    places = torch.linspace(-_FARTHEST, _FARTHEST, steps + 1, dtype=torch.float64)
    weights = (-0.5 * places**2).softmax(dim=0)
    return places, weights
