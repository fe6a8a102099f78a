"""Draws from a law on a space, and its log-density there where it has one in closed form."""

import torch
from torch import Generator, Tensor

from entrec.estimators import VonMisesFisher
from entrec.identifiability.laws import Law
from entrec.identifiability.quantiles import angles, standard
from entrec.identifiability.spaces import Box, Space, Sphere, Unbounded
from entrec.pairwise.similarity import to_sphere


def uniform(k: int, space: Space, generator: Generator) -> Tensor:
    """Rows spread evenly over a space, shape (k, dim)."""
    if isinstance(space, Sphere):
        return to_sphere(torch.randn(k, space.dim, generator=generator, device=generator.device))
    if isinstance(space, Box):
        drawn = torch.rand(k, space.dim, generator=generator, device=generator.device)
        return space.low + (space.high - space.low) * drawn
    raise ValueError("nothing is uniform on an unbounded space: choose a normal or Laplace marginal, or a box")


def around(centres: Tensor, law: Law, space: Space, generator: Generator) -> Tensor:
    """A draw from the law around each centre, shape (k, dim).

    On a box the law is truncated; on the sphere von Mises-Fisher is drawn exactly, and other laws in R^n and projected back.
    """
    check_fit(law, space)
    if isinstance(law, VonMisesFisher):
        return _von_mises_fisher(centres, float(law.kappa), generator)
    if isinstance(space, Box):
        return _truncated(centres, law, space, generator)
    u = torch.rand(centres.shape, generator=generator, device=generator.device, dtype=torch.float64)
    least = torch.finfo(u.dtype).eps  # 0 is drawn once in 2^53 times, and its quantile is infinite
    noise = standard(law, generator.device).quantile(u.clamp(least, 1 - least)) * float(law.unit)
    found = centres + noise.to(centres.dtype)
    return to_sphere(found) if isinstance(space, Sphere) else found


def log_uniform(z: Tensor, space: Space) -> Tensor:
    """The log-density of rows spread evenly, (k, dim) -> (k,); minus infinity off a box."""
    if isinstance(space, Unbounded):
        raise ValueError("nothing is uniform on an unbounded space")
    found = z.new_full((len(z),), -space.log_volume)
    if isinstance(space, Box):
        found[((z < space.low) | (z > space.high)).any(dim=1)] = -torch.inf
    return found


def log_around(z: Tensor, centres: Tensor, law: Law, space: Space) -> Tensor:
    """The log-density of each row around its centre, in nats; (k, dim), (k, dim) -> (k,).

    Raises:
        ValueError: the law is one that is projected onto the sphere, whose density has no closed form.
    """
    check_fit(law, space)
    if isinstance(space, Sphere) and not isinstance(law, VonMisesFisher):
        raise ValueError(f"{type(law).__name__} projected onto the sphere can be drawn from, and has no density in closed form")
    found = law.log_prob(z, centres)
    if isinstance(space, Box):
        low, high = _within(centres, law, space)
        found = found - (high - low).log().sum(dim=1).to(found.dtype)
        found = found.masked_fill(((z < space.low) | (z > space.high)).any(dim=1), -torch.inf)
    return found


def check_fit(law: Law, space: Space) -> None:
    """Whether a law can be on a space.

    Raises:
        ValueError: directions on a flat space.
    """
    if isinstance(law, VonMisesFisher) and not isinstance(space, Sphere):
        raise ValueError(f"von Mises-Fisher is a law of directions: it needs the sphere, got {type(space).__name__.lower()}")


def _within(centres: Tensor, law: Law, space: Box) -> tuple[Tensor, Tensor]:
    """The law's mass below the box's two sides, coordinate by coordinate, float64."""
    line, exact, unit = standard(law, centres.device), centres.double(), float(law.unit)
    return line.cdf((space.low - exact) / unit), line.cdf((space.high - exact) / unit)


def _truncated(centres: Tensor, law: Law, space: Box, generator: Generator) -> Tensor:
    low, high = _within(centres, law, space)
    u = torch.rand(centres.shape, generator=generator, device=generator.device, dtype=torch.float64)
    noise = standard(law, centres.device).quantile(low + (high - low) * u) * float(law.unit)
    return (centres + noise.to(centres.dtype)).clamp(space.low, space.high)


def _von_mises_fisher(centres: Tensor, kappa: float, generator: Generator) -> Tensor:
    """An angle from the centre, by the law of that, in a direction that is even around it."""
    k, dim = centres.shape
    u = torch.rand(k, 1, generator=generator, device=generator.device, dtype=torch.float64)
    angle = angles(kappa, dim, generator.device).quantile(u).to(centres.dtype)
    drawn = torch.randn(k, dim, generator=generator, device=generator.device, dtype=centres.dtype)
    tangent = to_sphere(drawn - (drawn * centres).sum(dim=1, keepdim=True) * centres)
    return to_sphere(angle.cos() * centres + angle.sin() * tangent)
