"""k-means in torch, on any device and in bounded memory: DeepCluster's labels."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from entrec import checks
from entrec.branches.sinkhorn import Total, alone, sinkhorn

Seeding = Literal["k-means++", "random"]
_ELEMENTS = 2**22  # of the largest matrix of rows by centres


class Clusters(NamedTuple):
    """A partition.

    Attributes:
        centres: (K, d).
        labels: the nearest centre of each row, int64 (n,).
        sizes: rows of each cluster, int64 (K,).
        objective: the mean squared distance of a row to its centre at the start and after each iteration; never increases.
    """

    centres: Tensor
    labels: Tensor
    sizes: Tensor
    objective: Tensor


@torch.no_grad()
def kmeans(
    x: Tensor,
    clusters: int,
    iterations: int = 20,
    generator: torch.Generator | None = None,
    spherical: bool = True,
    *,
    seeding: Seeding = "k-means++",
    start: Tensor | None = None,
) -> Clusters:
    r"""Lloyd's algorithm: centres that make :math:`\frac1n \sum_i \min_c |x_i - \mu_c|^2` small.

    Each iteration moves the centres to the means of their rows, and assigns each row to its nearest centre; it ends early when
    no row changes. Empty clusters: each takes, as its new centre, the row of the largest cluster that lies farthest from that
    cluster's centre, and the largest then counts as half as large for the next empty one. So an empty cluster splits a large
    one, and the objective cannot rise by it. Clusters stay empty only where rows coincide.

    Sums of rows are products with one-hot matrices, in a fixed order: the same rows and generator give the same clusters.

    Args:
        x: rows (n, d); never more than 2^22 distances are held at a time.
        clusters: K, at most n.
        iterations: at most.
        generator: of the seeding, on any device.
        spherical: rows and centres are unit vectors, so that the nearest centre is the one of largest cosine.
        seeding: `"k-means++"` draws each centre far from those before it (Arthur and Vassilvitskii, 2007), in K passes over x;
            `"random"` draws K different rows.
        start: centres (K, d) to start from instead.

    Example:
        >>> found = kmeans(torch.tensor([[0.0], [1.0], [10.0], [11.0]]), clusters=2, spherical=False)
        >>> found.centres.sort(dim=0).values.flatten(), found.objective[-1]
        (tensor([ 0.5000, 10.5000]), tensor(0.2500))
    """
    checks.batch("x", x, checks.whole("clusters", clusters, 1), why=f" for {clusters} clusters")
    checks.whole("iterations", iterations, 0)
    checks.choice("seeding", seeding, Seeding)
    x = checks.at_least_float32(x)
    x = functional.normalize(x, dim=1) if spherical else x
    if start is None:
        centres = _far_apart(x, clusters, generator) if seeding == "k-means++" else _random(x, clusters, generator)
    else:
        checks.alike("start", start, "x", x, rows=False)
        if start.shape != (clusters, x.shape[1]):
            raise ValueError(f"start must have shape ({clusters}, {x.shape[1]}), got {tuple(start.shape)}")
        centres = functional.normalize(start.to(x), dim=1) if spherical else start.to(x)
    labels, distances = _assign(x, centres)
    objective = [distances.mean()]
    for _ in range(iterations):
        centres = _means(x, labels, centres, distances, spherical)
        before = labels
        labels, distances = _assign(x, centres)
        objective.append(distances.mean())
        if torch.equal(labels, before):
            break
    return Clusters(centres, labels, torch.bincount(labels, minlength=clusters), torch.stack(objective))


def optimal_transport_labels(scores: Tensor, epsilon: float = 0.05, iterations: int = 50, total: Total = alone) -> Tensor:
    """Clusters of nearly equal size: each row's largest code by `sinkhorn`; scores (n, K) -> int64 (n,).

    The alternative to k-means' labels that cannot leave a cluster empty on average (SeLa, Asano et al., 2020).
    """
    return sinkhorn(scores, epsilon, iterations, total).argmax(dim=1)


def _assign(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's nearest centre, and the squared distance to it."""
    half_squares = centres.square().sum(dim=1) / 2
    labels, distances = [], []
    for rows in x.split(_chunk(centres)):
        nearest = torch.addmm(half_squares, rows, centres.T, alpha=-1).argmin(dim=1)
        labels.append(nearest)
        distances.append((rows - centres[nearest]).square().sum(dim=1))
    return torch.cat(labels), torch.cat(distances)


def _means(x: Tensor, labels: Tensor, centres: Tensor, distances: Tensor, spherical: bool) -> Tensor:
    """The mean of each cluster's rows; empty ones are re-seeded."""
    sums = torch.zeros_like(centres)
    chunk = _chunk(centres)
    for rows, of_rows in zip(x.split(chunk), labels.split(chunk), strict=True):
        sums += functional.one_hot(of_rows, len(centres)).to(x.dtype).T @ rows
    sizes = torch.bincount(labels, minlength=len(centres))
    means = functional.normalize(sums, dim=1) if spherical else sums / sizes.clamp(min=1).unsqueeze(1)
    distances, left = distances.clone(), sizes.clone()
    for empty in (sizes == 0).nonzero().flatten().tolist():
        largest = left.argmax()
        farthest = torch.where(labels == largest, distances, -1.0).argmax()
        means[empty] = x[farthest]
        distances[farthest] = -1.0  # taken
        left[largest] -= left[largest] // 2
    return means


def _far_apart(x: Tensor, clusters: int, generator: torch.Generator | None) -> Tensor:
    """k-means++: each next centre is a row drawn in proportion to its squared distance to the nearest centre so far."""
    device = "cpu" if generator is None else generator.device
    draws = torch.rand(clusters, generator=generator, dtype=torch.float64, device=device).to(x.device)
    chosen = (draws[0] * len(x)).long().clamp(max=len(x) - 1)
    centres = [x[chosen]]
    distances = (x - centres[0]).square().sum(dim=1)
    for draw in draws[1:]:
        # Where all rows are centres, any will do.
        mass = torch.where(distances.amax() > 0, distances, 1.0).double().cumsum(dim=0)
        chosen = torch.searchsorted(mass, draw * mass[-1], right=True).clamp(max=len(x) - 1)
        centres.append(x[chosen])
        distances = torch.minimum(distances, (x - centres[-1]).square().sum(dim=1))
    return torch.stack(centres)


def _random(x: Tensor, clusters: int, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    return x[torch.randperm(len(x), generator=generator, device=device)[:clusters].to(x.device)]


def _chunk(centres: Tensor) -> int:
    return max(1, _ELEMENTS // len(centres))
