"""What can be read off embeddings without labels: how much of their space they fill, and what one view tells of the other."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators import VonMisesFisher, effective_rank, log_sphere_area
from entrec.estimators.density import log_kernel, log_kernel_sum
from entrec.estimators.discrete import entropy_of_distribution, expected_log_prob
from entrec.estimators.entropy import unnormalised_entropy
from entrec.estimators.geometry import distances_on_sphere, log_mean_potential
from entrec.pairwise import How
from entrec.pairwise.similarity import to_sphere

_SHARPEST = 10_000.0
_OTHERS = 8  # rows that each is compared with
_HOW = How("ieee")
_UNIFORMITY = 2.0  # t, as Wang and Isola (2020) have it


@dataclass(frozen=True)
class Pairs:
    """What the embeddings of one view tell of the other's, in nats.

    Args:
        reconstruction: mean log q(z2|z1), or of codes the mean log-probability of the other view's.
        er_bound: entropy + reconstruction.
        er_ceiling: what it is where all points are spread evenly and both views of each are in one place; of codes ln m.
            Estimated from few rows, or through a narrow kernel, the bound can pass it.
        infonce_bound: the other bound on the mutual information; None for codes.
        infonce_ceiling: ln k, which that cannot pass.
        alignment: mean squared distance of the two views of a datum on the sphere; None for codes.
        nearer: how often a datum's other view is nearer than another datum's (for codes: likelier); chance is 1/2.
    """

    reconstruction: float
    er_bound: float
    er_ceiling: float
    infonce_bound: float | None
    infonce_ceiling: float
    alignment: float | None
    nearer: float


@dataclass(frozen=True)
class Readings:
    """Embeddings on the sphere, through a von Mises-Fisher kernel.

    Args:
        rows: how many data.
        dim: of the embeddings.
        kappa: the kernel's concentration.
        entropy: Joe's estimate in nats, leave-one-out, the mean over the views.
        floor: what it is where all points are one, -log q(z|z).
        ceiling: what it is where they fill the sphere evenly, the logarithm of its area.
        uniformity: log-mean Gaussian potential; lower is more uniform.
        rank: effective rank of the first view's embeddings as they came (RankMe), at most `largest_rank`.
        largest_rank: min(rows, dim).
        spread: standard deviations of the directions' coordinates, in units of those of points that fill the sphere evenly:
            smallest, median and largest.
        pairs: what one view tells of the other; None for a single view.
    """

    rows: int
    dim: int
    kappa: float
    entropy: float
    floor: float
    ceiling: float
    uniformity: float
    rank: float
    largest_rank: int
    spread: tuple[float, float, float]
    pairs: Pairs | None

    @property
    def filled(self) -> float:
        """The entropy on a scale from 0, its floor, to 1, its ceiling; ratios of the entropies themselves change sign.

        Of few points, or through a narrow kernel, the estimate can pass the ceiling; the scale ends there.
        """
        return min(max((self.entropy - self.floor) / (self.ceiling - self.floor), 0.0), 1.0)


@dataclass(frozen=True)
class CodeReadings:
    """Distributions over codes (prototypes, clusters, a softmax head).

    Args:
        rows: how many data.
        codes: m.
        marginal: entropy of the mean distribution in nats, the mean over the views; at most ln m.
        conditional: mean entropy of a datum's own distribution; 0 where each has one code.
        pairs: what one view tells of the other; None for a single view.
    """

    rows: int
    codes: int
    marginal: float
    conditional: float
    pairs: Pairs | None

    @property
    def largest(self) -> float:
        """Ln m, the most that either entropy can be."""
        return math.log(self.codes)


@torch.no_grad()
def look(z1: Tensor, z2: Tensor | None = None, *, kappa: float = 10.0) -> Readings:
    r"""Read off the embeddings of one view, or of two.

    Args:
        z1: shape (k, d) with k >= 2 and d >= 2; their directions count, and for the rank their lengths too.
        z2: of another view of the same data, row by row.
        kappa: concentration of the kernel and of q, as `ContinuousER`'s; the inverse of a contrastive temperature.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z = torch.randn(1000, 16, generator=generator)
        >>> found = look(z, z + 0.3 * torch.randn(1000, 16, generator=generator))
        >>> round(found.filled, 2), round(found.pairs.er_bound, 1), round(found.pairs.er_ceiling, 1)
        (1.0, 6.8, 7.3)
    """
    views = [z1] if z2 is None else [z1, z2]
    for name, z in zip(("z1", "z2"), views, strict=False):
        checks.batch(name, z, 2, " to be looked at")
        if z.shape[1] < 2:
            raise ValueError(f"{name} must have at least 2 dimensions, as only directions count, got shape {tuple(z.shape)}")
    if not 0 < kappa <= _SHARPEST:
        raise ValueError(f"kappa must be positive and at most {_SHARPEST:.0f}, beyond which nothing is near, got {kappa}")
    if z2 is not None:
        checks.alike("z1", z1, "z2", z2)
    values = checks.ValueChecks()
    for name, z in zip(("z1", "z2"), views, strict=False):
        values.directions(name, z)
    values.raise_or_flag()
    # All views at once, and one number after the other is asked for only at the end: on a GPU each question waits for it.
    z = torch.stack(checks.same_dtype(*views))
    density = VonMisesFisher(kappa)
    dim, log_c = z1.shape[1], float(density.log_normalizer(z1.shape[1]))
    entropies = unnormalised_entropy(z, density, "joe", True, _HOW)
    rank = effective_rank(z[0] / z[0].abs().amax(), validate=False)  # or the sum of large singular values would overflow
    spread = _spread(z[0])
    paired = [] if z2 is None else _pairs(z[0], z[1], density)
    uniform = log_mean_potential(z, _UNIFORMITY, _HOW).mean()
    found = torch.stack([x.double() for x in (entropies.mean(), entropies[-1], uniform, rank, *spread, *paired)]).tolist()
    (entropy, second, uniform_, rank_, least, median, most), of_pairs = found[:7], found[7:]
    return Readings(
        rows=len(z1),
        dim=dim,
        kappa=kappa,
        entropy=entropy - log_c,
        floor=-log_c - kappa,
        ceiling=log_sphere_area(dim),
        uniformity=uniform_,
        rank=rank_,
        largest_rank=min(z1.shape),
        spread=(least, median, most),
        pairs=_pairs_of(second, of_pairs, len(z1), dim, log_c, kappa) if of_pairs else None,
    )


@torch.no_grad()
def look_at_codes(p1: Tensor, p2: Tensor | None = None) -> CodeReadings:
    """Read off distributions over codes, of one view or of two.

    Args:
        p1: shape (k, m), rows of probabilities.
        p2: of another view of the same data, row by row.

    Example:
        >>> round(look_at_codes(torch.full((100, 512), 1 / 512)).conditional, 4)  # what a loss that stays at 6.2383 is: ln 512
        6.2383
    """
    views = [p1] if p2 is None else [p1, p2]
    values = checks.ValueChecks()
    for name, p in zip(("p1", "p2"), views, strict=False):
        checks.batch(name, p, 2, " to be looked at")
        values.distributions(name, p)
    values.raise_or_flag()
    if p1.shape[1] < 2:
        raise ValueError(f"p1 must have at least 2 codes, or there is nothing to tell, got shape {tuple(p1.shape)}")
    if p2 is not None:
        checks.alike("p1", p1, "p2", p2)
    exact = [p.double() for p in views]
    marginals = [entropy_of_distribution(p.mean(dim=0)) for p in exact]
    pairs = None if p2 is None else _code_pairs(exact[0], exact[1], float(marginals[1]))
    conditional = [float(entropy_of_distribution(p).mean()) for p in exact]
    return CodeReadings(
        rows=len(p1),
        codes=p1.shape[1],
        marginal=float(sum(marginals)) / len(views),
        conditional=sum(conditional) / len(views),
        pairs=pairs,
    )


def _pairs(z1: Tensor, z2: Tensor, density: VonMisesFisher) -> list[Tensor]:
    """The reconstruction without its constant, the mean log-ratio of InfoNCE, the alignment, and how often it is nearer."""
    own = log_kernel(density, z2, z1)
    first, second = to_sphere(z1.double()), to_sphere(z2.double())
    return [
        own.mean(),
        (own - log_kernel_sum(density, z1, z2, exclude_diagonal=False, how=_HOW)).mean(),
        distances_on_sphere(z1, z2, 2.0).mean(),
        _nearer(lambda other: (first * other).sum(dim=1), second),
    ]


def _pairs_of(entropy: float, found: list[float], rows: int, dim: int, log_c: float, kappa: float) -> Pairs:
    """With the second view's entropy, without its constant: the constants of both terms cancel in the bound."""
    rec, log_ratio, aligned, nearer = found
    return Pairs(
        reconstruction=rec + log_c,
        er_bound=entropy + rec,
        er_ceiling=log_sphere_area(dim) + log_c + kappa,
        infonce_bound=log_ratio + math.log(rows),
        infonce_ceiling=math.log(rows),
        alignment=aligned,
        nearer=nearer,
    )


def _code_pairs(p1: Tensor, p2: Tensor, marginal: float) -> Pairs:
    log_q = p1.clamp(min=torch.finfo(torch.float32).tiny).log()
    rec = float(expected_log_prob(p2, log_q).mean())
    nearer = float(_nearer(lambda other: expected_log_prob(other, log_q), p2))
    return Pairs(rec, marginal + rec, math.log(p1.shape[1]), None, math.log(len(p1)), None, nearer)


def _nearer(likeness: Callable[[Tensor], Tensor], targets: Tensor) -> Tensor:
    """How often a row is more like its own target than like another row's, over some others for each; ties count half."""
    k = len(targets)
    # Drawn, as rows may come in turns; none is 0 or k, a row's own.
    shifts = (1 + torch.randperm(k - 1, generator=torch.Generator().manual_seed(0))[:_OTHERS]).tolist()
    own = likeness(targets)
    signs = [torch.sign(own - likeness(targets.roll(shift, dims=0))).mean() for shift in shifts]
    return 0.5 + torch.stack(signs).mean() / 2


def _spread(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    directions = to_sphere(z.double())
    deviations = directions.std(dim=0, correction=0) * math.sqrt(z.shape[1])
    return deviations.min(), deviations.median(), deviations.max()
