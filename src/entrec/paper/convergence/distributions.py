"""Distributions of projections whose entropy is known in closed form, in nats."""

import math
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from scipy.stats import vonmises_fisher
from torch import Generator, Tensor

from entrec import Density, Gaussian, VonMisesFisher, log_sphere_area
from entrec.estimators.sphere import vmf_mean_cosine
from entrec.pairwise.similarity import to_sphere


class Distribution(Protocol):
    """Something to draw projections from, with what the estimators of its entropy should find."""

    @property
    def dim(self) -> int:
        """Of the space that it lies in."""

    @property
    def name(self) -> str:
        """A short name for tables and legends."""

    @property
    def width(self) -> float:
        """The distribution's own width: a bandwidth of order k^a is k^a times this."""

    @property
    def entropy(self) -> float:
        """The differential entropy."""

    @property
    def plugin_limit(self) -> float:
        """What the normalised plug-in converges to, -E[p log p] / E[p]."""

    def sample(self, k: int, generator: Generator) -> Tensor:
        """Independent draws, shape (k, dim)."""

    def log_prob(self, z: Tensor) -> Tensor:
        """The log-density of each row."""

    def kernel(self, width: float) -> Density:
        """The kernel of this width on the distribution's space: kappa^(-1/2) on the sphere, sigma in R^d."""


@dataclass(frozen=True)
class UniformSphere:
    """Uniform on S^{d-1}. A kernel estimate has no smoothing bias here: what is left comes from k alone."""

    dim: int

    @property
    def name(self) -> str:
        """A short name."""
        return f"uniform on S^{self.dim - 1}"

    @property
    def width(self) -> float:
        """The radius."""
        return 1.0

    @property
    def entropy(self) -> float:
        """The log area of the sphere."""
        return log_sphere_area(self.dim)

    @property
    def plugin_limit(self) -> float:
        """The entropy itself: the density is constant."""
        return self.entropy

    def sample(self, k: int, generator: Generator) -> Tensor:
        """Directions of Gaussian vectors."""
        return to_sphere(torch.randn(k, self.dim, generator=generator, device=generator.device))

    def log_prob(self, z: Tensor) -> Tensor:
        """Minus the log area."""
        return torch.full((len(z),), -self.entropy, device=z.device)

    def kernel(self, width: float) -> VonMisesFisher:
        """Von Mises-Fisher of that width."""
        return VonMisesFisher(width**-2)


@dataclass(frozen=True)
class VMF:
    """Von Mises-Fisher on S^{d-1}, around the last axis."""

    dim: int
    kappa: float

    @property
    def name(self) -> str:
        """A short name."""
        return f"vMF({self.kappa:g}) on S^{self.dim - 1}"

    @property
    def width(self) -> float:
        """kappa^(-1/2)."""
        return float(self.kappa**-0.5)

    @property
    def entropy(self) -> float:
        """The closed form of the density."""
        return float(VonMisesFisher(self.kappa).entropy(self.dim))

    @property
    def plugin_limit(self) -> float:
        """-log C - kappa A(2 kappa): the density's square is again von Mises-Fisher, twice as concentrated."""
        mean_cosine = float(vmf_mean_cosine(2 * self.kappa, self.dim))
        return -float(VonMisesFisher(self.kappa).log_normalizer(self.dim)) - self.kappa * mean_cosine

    def sample(self, k: int, generator: Generator) -> Tensor:
        """Scipy's sampler."""
        seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
        draws = vonmises_fisher(self._axis().tolist(), self.kappa).rvs(k, random_state=seed)
        return torch.as_tensor(draws, dtype=torch.float32, device=generator.device)

    def log_prob(self, z: Tensor) -> Tensor:
        """The density's own."""
        return VonMisesFisher(self.kappa).log_prob(z, self._axis().to(z).expand_as(z))

    def kernel(self, width: float) -> VonMisesFisher:
        """Von Mises-Fisher of that width."""
        return VonMisesFisher(width**-2)

    def _axis(self) -> Tensor:
        return torch.eye(self.dim)[-1]


@dataclass(frozen=True)
class StandardGaussian:
    """N(0, I) in R^d."""

    dim: int

    @property
    def name(self) -> str:
        """A short name."""
        return f"Gaussian in R^{self.dim}"

    @property
    def width(self) -> float:
        """The standard deviation."""
        return 1.0

    @property
    def entropy(self) -> float:
        """d/2 log(2 pi e)."""
        return float(Gaussian(1.0).entropy(self.dim))

    @property
    def plugin_limit(self) -> float:
        """H - d/4."""
        return self.entropy - self.dim / 4

    def sample(self, k: int, generator: Generator) -> Tensor:
        """Gaussian vectors."""
        return torch.randn(k, self.dim, generator=generator, device=generator.device)

    def log_prob(self, z: Tensor) -> Tensor:
        """The density's own."""
        return Gaussian(1.0).log_prob(z, torch.zeros_like(z))

    def kernel(self, width: float) -> Gaussian:
        """Gaussian of that sigma."""
        return Gaussian(width)


def smoothing_bias(dim: int, h: float) -> float:
    r"""Joe's bias on N(0, I) with a Gaussian kernel as k grows: KL(N(0, 1) || N(0, 1 + h^2)) per dimension, about h^4/4."""
    return dim / 2 * (math.log1p(h * h) + 1 / (1 + h * h) - 1)


def uniform_sphere_bias(dim: int, width: float, k: int, leave_one_out: bool) -> float:
    r"""Joe's bias on the uniform sphere, by the logarithm's second-order expansion.

    The leave-one-out estimate at a point is a mean of kernel values with the right expectation, so the logarithm's curvature
    adds half its relative variance, :math:`\frac{1}{2(k-1)} (|S| C(\kappa)^2 / C(2\kappa) - 1)`. The self term raises its mean
    by :math:`\frac1k (|S| C(\kappa) e^\kappa - 1)` and so lowers the entropy. Both grow as :math:`k^{-1} w^{-(d-1)}` where the
    width w shrinks.
    """
    kappa = width**-2
    log_c = cast(float, VonMisesFisher(kappa).log_normalizer(dim))
    log_c_twice = cast(float, VonMisesFisher(2 * kappa).log_normalizer(dim))
    variance = math.expm1(log_sphere_area(dim) + 2 * log_c - log_c_twice)  # of one kernel value, relative to its mean
    if leave_one_out:
        return variance / (2 * (k - 1))
    mean = 1 + math.expm1(log_sphere_area(dim) + log_c + kappa) / k
    return variance * (k - 1) / k**2 / (2 * mean**2) - math.log(mean)
