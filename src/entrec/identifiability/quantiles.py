"""Laws on the line by their quantiles: a uniform number in, a draw out, with no rejection and so no loop that may not end."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from entrec.estimators import Gaussian, GeneralizedNormal, Laplace
from entrec.identifiability.laws import Law

_NODES = 2**16
_NEGLIGIBLE = 1e-18  # mass beyond a table's ends


class Line(NamedTuple):
    """A law on the line: its distribution function and the inverse of that, of float64 tensors."""

    cdf: Callable[[Tensor], Tensor]
    quantile: Callable[[Tensor], Tensor]


class Table(NamedTuple):
    """A law's distribution function at increasing nodes, linear between them; within 1e-6 for laws as smooth as ours."""

    nodes: Tensor
    mass: Tensor

    def cdf(self, x: Tensor) -> Tensor:
        """How much lies below."""
        return _interpolated(x, self.nodes, self.mass)

    def quantile(self, u: Tensor) -> Tensor:
        """Below what so much lies."""
        return _interpolated(u, self.mass, self.nodes)


def standard(density: Law, device: torch.device) -> Line:
    """One coordinate of a density around 0, in its own unit (sigma, or the scale)."""
    if isinstance(density, Gaussian):
        return Line(torch.special.ndtr, torch.special.ndtri)
    if isinstance(density, Laplace):
        return Line(_laplace_cdf, _laplace_quantile)
    if isinstance(density, GeneralizedNormal):
        table = _generalized_normal(float(density.beta), device)
        return Line(table.cdf, table.quantile)
    raise TypeError(f"a law on the line must be Gaussian, Laplace or GeneralizedNormal, got {type(density).__name__}")


@lru_cache(maxsize=32)  # or each step would make its table again, and copy it to the device
def angles(kappa: float, dim: int, device: torch.device) -> Table:
    r"""The angle from a von Mises-Fisher law's mean: density proportional to :math:`e^{\kappa\cos\theta} \sin^{d-2}\theta`."""
    # The mass lies within some (d / kappa)^(1/2) of 0, or, where kappa is small, around a right angle.
    widest = min(math.pi, 12 * math.sqrt(dim / kappa))
    theta = torch.linspace(0, widest, _NODES, dtype=torch.float64)
    at_zero = torch.finfo(theta.dtype).tiny  # has no logarithm, and no mass but in the plane, where the factor is 1
    return _table(theta, kappa * theta.cos() + (dim - 2) * theta.sin().clamp_min(at_zero).log(), device)


@lru_cache(maxsize=32)
def _generalized_normal(beta: float, device: torch.device) -> Table:
    reach = (-math.log(_NEGLIGIBLE)) ** (1 / beta)
    # Below 1 there is a peak too sharp for even steps: finer towards 0.
    half = reach * torch.linspace(0, 1, _NODES // 2, dtype=torch.float64) ** (2 / beta if beta < 1 else 1)
    nodes = torch.cat([-half.flip(0), half[1:]])
    return _table(nodes, -(nodes.abs() ** beta), device)


def _table(nodes: Tensor, log_density: Tensor, device: torch.device) -> Table:
    """From the log-density at the nodes, up to a constant."""
    mass = torch.cumulative_trapezoid((log_density - log_density.max()).exp(), nodes)
    return Table(nodes.to(device), torch.cat([mass.new_zeros(1), mass / mass[-1]]).to(device))


def _interpolated(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Linear between knots, the first and the last value beyond."""
    right = torch.searchsorted(knots, x.contiguous()).clamp(1, len(knots) - 1)
    left = right - 1
    # Where there is no mass two knots are equal: any value between theirs will do.
    share = (x - knots[left]) / (knots[right] - knots[left]).clamp_min(torch.finfo(knots.dtype).tiny)
    return values[left] + share.clamp(0, 1) * (values[right] - values[left])


def _laplace_cdf(x: Tensor) -> Tensor:
    tail = torch.exp(-x.abs()) / 2
    return torch.where(x < 0, tail, 1 - tail)


def _laplace_quantile(u: Tensor) -> Tensor:
    tail = torch.log(2 * torch.minimum(u, 1 - u).clamp_min(torch.finfo(u.dtype).tiny))
    return torch.where(u < 0.5, tail, -tail)
