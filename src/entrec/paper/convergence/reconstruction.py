"""The reconstruction's variance against k, and the bounds that the range of log q sets to it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from entrec import Density, Gaussian, VonMisesFisher, reconstruction
from entrec.pairwise.similarity import to_sphere
from entrec.paper.convergence.distributions import VMF
from entrec.paper.convergence.measure import Curve, generator, measure

KAPPA = 10.0
SIGMA = 1.0
CUBE_DIM = 4


@dataclass(frozen=True)
class Case:
    """Pairs from a bounded space, with what is known of log q on them."""

    name: str
    density: Density
    dim: int
    expectation: float  # of log q without its constant
    bound: float  # (range of log q)^2 / 4: by Popoviciu's inequality k times the variance is at most this
    paper_bound: float  # what the paper's appendix has in its place
    pairs: Callable[[int, Generator], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class ReconstructionCurve:
    """One case as measured; `bound` and `paper_bound` are to be divided by k."""

    curve: Curve
    bound: float
    paper_bound: float


def run(quick: bool, seed: int, device: str) -> list[ReconstructionCurve]:
    """Typical pairs, and the pairs that make the variance as large as it can be, on the sphere and in the cube."""
    sizes = {16: 800, 64: 800, 256: 500, 1024: 300} if quick else dict.fromkeys((16, 64, 256, 1024, 4096), 4000)
    curves = []
    for case in _cases():
        stream = generator(seed, f"reconstruction {case.name}", device)
        points = [measure(partial(_draw, case, k, stream), float(k), repeats) for k, repeats in sizes.items()]
        curves.append(ReconstructionCurve(Curve(case.name, "k", points), case.bound, case.paper_bound))
    return curves


def _draw(case: Case, k: int, stream: Generator) -> tuple[float, float]:
    z1, z2 = case.pairs(k, stream)
    value = float(reconstruction(z2, z1, case.density))
    return value, value - case.expectation - float(case.density.log_normalizer(case.dim))


def _cases() -> list[Case]:
    vmf, gaussian = VonMisesFisher(KAPPA), Gaussian(SIGMA)
    mean_kernel = -float(vmf.entropy(3)) - float(vmf.log_normalizer(3))
    sphere = (KAPPA**2, KAPPA**2 / 4)
    cube = (CUBE_DIM**2 / SIGMA**4, CUBE_DIM / (2 * SIGMA**2))
    return [
        Case("sphere, z2 ~ vMF around z1", vmf, 3, mean_kernel, *sphere, _vmf_pairs),
        Case("sphere, z2 = ±z1", vmf, 3, 0.0, *sphere, _opposite_pairs),
        Case("cube, independent uniform", gaussian, CUBE_DIM, -CUBE_DIM / (3 * SIGMA**2), *cube, _cube_pairs),
        Case("cube, z2 = ±z1, a corner", gaussian, CUBE_DIM, -CUBE_DIM / SIGMA**2, *cube, _corner_pairs),
    ]


def _vmf_pairs(k: int, stream: Generator) -> tuple[Tensor, Tensor]:
    z2 = VMF(3, KAPPA).sample(k, stream)
    z1 = torch.zeros_like(z2)
    z1[:, -1] = 1.0
    return z1, z2


def _opposite_pairs(k: int, stream: Generator) -> tuple[Tensor, Tensor]:
    z1 = to_sphere(torch.randn(k, 3, generator=stream, device=stream.device))
    return z1, z1 * _signs(k, 1, stream)


def _cube_pairs(k: int, stream: Generator) -> tuple[Tensor, Tensor]:
    z = 2 * torch.rand(2, k, CUBE_DIM, generator=stream, device=stream.device) - 1
    return z[0], z[1]


def _corner_pairs(k: int, stream: Generator) -> tuple[Tensor, Tensor]:
    z1 = _signs(k, CUBE_DIM, stream)
    return z1, z1 * _signs(k, 1, stream)


def _signs(k: int, dim: int, stream: Generator) -> Tensor:
    return 2.0 * torch.randint(2, (k, dim), generator=stream, device=stream.device) - 1
