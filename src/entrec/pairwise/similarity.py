"""The similarities s(a, b): their names, single pairs of them, and whole blocks."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

NamedSimilarity = Literal["dot", "cosine", "sqeuclidean", "l1"]
Similarity = NamedSimilarity | tuple[Literal["lp"], float | Tensor]


def to_sphere(z: Tensor) -> Tensor:
    r"""Each row's direction :math:`z / \|z\|`, for rows of any finite scale (squares neither overflow nor vanish)."""
    largest = z.detach().abs().amax(dim=-1, keepdim=True)
    scaled = z / torch.where(largest > 0, largest, 1.0)
    # A zero row has no direction: it stays zero, nothing is divided by zero, and the value checks report it.
    length = torch.linalg.vector_norm(torch.where(largest > 0, scaled, 1.0), dim=-1, keepdim=True)
    directions: Tensor = scaled / length
    return directions


def similarity_of_difference(x: Tensor, similarity: Similarity) -> Tensor:
    """The s(a_i, b_i) of single pairs at scale 1, from x = a_i - b_i (so no product); (..., d) -> (...)."""
    if similarity == "sqeuclidean":
        return -x.square().sum(dim=-1)
    if similarity == "l1":
        return -x.abs().sum(dim=-1)
    return -_powers(x, exponent(similarity)).sum(dim=-1)


def all_similarities(a: Tensor, b: Tensor, similarity: Similarity) -> Tensor:
    """The s(a_i, b_j) of all pairs at scale 1, shape (..., k, m)."""
    if similarity == "dot":
        return a @ b.mT
    if similarity == "cosine":
        return to_sphere(a) @ to_sphere(b).mT
    if similarity == "sqeuclidean":
        return -squared_distances(*centred(a, b)).to(a.dtype)
    p = exponent(similarity)
    if by_coordinate(similarity, a.device):
        found = sum(_powers(difference, p) for difference in differences(a, b))
        return -found if isinstance(found, Tensor) else a.new_zeros(())
    return -_powers(distances(a, b, float(p)), p)


def distances(a: Tensor, b: Tensor, p: float) -> Tensor:
    """The p-th roots of the sums of |a-b|^p of all pairs, from the differences themselves."""
    return torch.cdist(a, b, p=p, compute_mode="donot_use_mm_for_euclid_dist")


def centred(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float64, about the mean of `b`: squared distances cancel where a is close to b, where a kernel looks."""
    wide_b = b.double()
    origin = wide_b.detach().mean(dim=-2, keepdim=True)
    wide_b = wide_b - origin
    return (wide_b if a is b else a.double() - origin), wide_b


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a|^2 + |b|^2 - 2 a.b of all pairs, of points that are `centred`."""
    norms = a.square().sum(dim=-1).unsqueeze(-1) + b.square().sum(dim=-1).unsqueeze(-2)
    return (norms - 2 * a @ b.mT).clamp_min(0)


def differences(a: Tensor, b: Tensor) -> Iterator[Tensor]:
    """The a_i - b_j of all pairs, (..., k, m), a coordinate at a time."""
    for x, y in zip(a.unbind(-1), b.unbind(-1), strict=True):
        yield x.unsqueeze(-1) - y.unsqueeze(-2)


def by_coordinate(similarity: Similarity, device: torch.device) -> bool:
    """Whether sums of powers are added up coordinate by coordinate: cdist has no gradient in p, and overflows for small p.

    On a CPU it also takes a power of each number by itself, but for 1 and 2: forwards and backwards this is 3 to 80 times as
    fast there, more so in few dimensions.
    """
    p = exponent(similarity)
    return isinstance(p, Tensor) or p < 0.5 or (device.type == "cpu" and p not in (1, 2))


def exponent(similarity: Similarity) -> float | Tensor:
    """The p of a sum of |a-b|^p; 2 for the products, where it is not used."""
    if isinstance(similarity, tuple):
        return similarity[1]
    return 1.0 if similarity == "l1" else 2.0


def _powers(x: Tensor, p: float | Tensor) -> Tensor:
    """|x|^p with a zero gradient at x = 0, where the derivative for p < 1 is infinite."""
    size = x.abs()
    if not isinstance(p, Tensor) and p >= 1:
        return size**p
    return torch.where(size > 0, torch.where(size > 0, size, 1.0) ** p, 0.0)
