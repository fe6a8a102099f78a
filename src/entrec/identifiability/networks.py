"""The unknown mixing of latents into data, which can be undone, and the encoder that has to find out how."""

from itertools import pairwise
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from entrec import checks
from entrec.identifiability.spaces import Box, Space, Sphere
from entrec.pairwise.similarity import to_sphere
from entrec.training.draws import generator_of, seed_of

_AT_ONCE = 4096  # matrices whose condition is looked at


class Mixing(nn.Module):
    """An invertible network: square linear maps with a leaky ReLU between each two (Zimmermann et al., 2021, Appendix A).

    Each map is the best-conditioned of many with entries uniform in [-1, 1] and columns of length one.

    Args:
        dim: of latents and data.
        generator: of the weights, on the CPU.
        layers: linear maps.
        slope: of the leaky ReLU for what is below 0.
        draws: matrices to choose each map from.
    """

    weights: Tensor

    def __init__(self, dim: int, generator: Generator, layers: int = 3, slope: float = 0.2, draws: int = 25_000) -> None:
        super().__init__()
        checks.whole("dim", dim, 1)
        checks.whole("layers", layers, 1)
        checks.whole("draws", draws, 1)
        if not 0 < slope <= 1:
            raise ValueError(f"slope must be above 0, or the mixing could not be undone, and at most 1, got {slope}")
        self.slope = slope
        self.register_buffer("weights", torch.stack([_well_conditioned(dim, draws, generator) for _ in range(layers)]))

    def forward(self, z: Tensor) -> Tensor:
        """Data from latents, (k, dim) -> (k, dim)."""
        first, *rest = self.weights
        x: Tensor = z @ first.mT
        for weight in rest:
            x = functional.leaky_relu(x, self.slope) @ weight.mT
        return x

    def inverse(self, x: Tensor) -> Tensor:
        """Latents from data, (k, dim) -> (k, dim), in float64."""
        *rest, last = self.weights.double()
        z: Tensor = torch.linalg.solve(last, x.double().mT).mT
        for weight in reversed(rest):
            z = torch.where(z < 0, z / self.slope, z)
            z = torch.linalg.solve(weight, z.mT).mT
        return z


def _well_conditioned(dim: int, draws: int, generator: Generator) -> Tensor:
    best, least = torch.eye(dim), torch.inf
    for start in range(0, draws, _AT_ONCE):
        drawn = 2 * torch.rand(min(_AT_ONCE, draws - start), dim, dim, generator=generator, dtype=torch.float64) - 1
        drawn = drawn / drawn.norm(dim=1, keepdim=True)
        conditions = torch.linalg.cond(drawn)
        if float(conditions.min()) < least:
            least, best = float(conditions.min()), drawn[int(conditions.argmin())]
    return best.float()


class Encoder(nn.Module):
    """From data to projections in the model's space: dim, 10 dim, four times 50 dim, 10 dim, dim, with leaky ReLUs.

    Args:
        dim: of the data.
        out: where projections live: on the sphere they are normalised, on a box they are sigmoids between its bounds.
        width: of the wide layers, in dims; those at the ends are a fifth of it.
        learnt_bounds: a box's bounds are only where those begin that are learnt, as in the tables.
    """

    def __init__(self, dim: int, out: Space, width: int = 50, learnt_bounds: bool = True) -> None:
        super().__init__()
        checks.whole("width", width, 5)
        wide, narrow = width * dim, width // 5 * dim
        self.widths = (dim, narrow, wide, wide, wide, wide, narrow, out.dim)
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(self.widths))
        self.out = out
        if isinstance(out, Box):
            self.low = nn.Parameter(torch.full((out.dim,), out.low), requires_grad=learnt_bounds)
            self.high = nn.Parameter(torch.full((out.dim,), out.high), requires_grad=learnt_bounds)

    def forward(self, x: Tensor) -> Tensor:
        """Projections (k, out.dim) of data (k, dim), in float32 or better whatever autocast makes of the layers."""
        *hidden, last = self.layers
        for layer in hidden:
            x = functional.leaky_relu(layer(x))
        with torch.autocast(x.device.type, enabled=False):  # a small product, whose rounding would be the projections'
            z = cast(Tensor, last(checks.at_least_float32(x)))
        if isinstance(self.out, Sphere):
            return to_sphere(z)
        return self.low + (self.high - self.low) * z.sigmoid() if isinstance(self.out, Box) else z

    @torch.no_grad()
    def pad(self, lanes: int) -> None:
        """Round hidden widths up to multiples of `lanes`, which matrix units are several times faster with.

        What is added has weights of zero: it is always 0, nothing follows from it, and so its gradients are 0 too, for ever.
        """
        ends = (0, len(self.layers))
        held = [n if i in ends else -(-n // lanes) * lanes for i, n in enumerate(self.widths)]
        for layer, (i, o) in zip(self.layers, pairwise(held), strict=True):
            for name, shape in (("weight", (o, i)), ("bias", (o,))):
                own = getattr(layer, name)
                larger = own.new_zeros(shape)
                larger[tuple(map(slice, own.shape))] = own
                setattr(layer, name, nn.Parameter(larger))


def networks(seed: int, dim: int, out: Space, width: int, draws: int, learnt_bounds: bool = True) -> tuple[Mixing, Encoder]:
    """The mixing and the encoder that belong to a seed, on the CPU; PyTorch's own generator stays as it was."""
    mixing = Mixing(dim, generator_of("cpu", seed, 0), draws=draws)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, 1))
        return mixing, Encoder(dim, out, width, learnt_bounds)
