"""The generative process: latents of one view, and of the other given it."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from entrec.identifiability.laws import Law
from entrec.identifiability.sampling import around, check_fit, log_around, log_uniform, uniform
from entrec.identifiability.spaces import Box, Space, Sphere, Unbounded


@dataclass(frozen=True)
class Latents:
    """Pairs of latents (Zimmermann et al., 2021, Section 4): z1 from the marginal, z2 around z1.

    Args:
        space: where they live.
        marginal: law of z1 around the space's middle (the first axis, the box's centre, the origin); None: uniform.
        conditional: law of z2 around z1.

    Example:
        >>> from entrec import VonMisesFisher
        >>> z1, z2 = Latents(Sphere(10), None, VonMisesFisher(10.0)).pairs(6144, torch.Generator().manual_seed(0))
        >>> round(float((z1 * z2).sum(dim=1).mean()), 1)  # I_5(10) / I_4(10)
        0.6
    """

    space: Space
    marginal: Law | None
    conditional: Law

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.marginal is None and isinstance(self.space, Unbounded):
            raise ValueError(
                "marginal uniform needs a bounded space, got unbounded; normal:1 or laplace:1 is what the paper has"
            )
        for law in (self.marginal, self.conditional):
            if law is not None:
                check_fit(law, self.space)

    def sample(self, k: int, generator: Generator) -> Tensor:
        """Latents of one view, (k, dim), where the generator is."""
        if self.marginal is None:
            return uniform(k, self.space, generator)
        return around(self._middle(k, generator.device), self.marginal, self.space, generator)

    def pairs(self, k: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Latents of both views, (k, dim) each."""
        z1 = self.sample(k, generator)
        return z1, around(z1, self.conditional, self.space, generator)

    def log_marginal(self, z: Tensor) -> Tensor:
        """Log p(z) of each row in nats, where it has a closed form."""
        if self.marginal is None:
            return log_uniform(z, self.space)
        return log_around(z, self._middle(len(z), z.device).to(z.dtype), self.marginal, self.space)

    def log_conditional(self, z2: Tensor, z1: Tensor) -> Tensor:
        """Log p(z2 | z1) of each row in nats, where it has a closed form."""
        return log_around(z2, z1, self.conditional, self.space)

    def _middle(self, k: int, device: torch.device) -> Tensor:
        found = torch.zeros(k, self.space.dim, device=device)
        if isinstance(self.space, Sphere):
            found[:, 0] = 1
        if isinstance(self.space, Box):
            found += (self.space.low + self.space.high) / 2
        return found
