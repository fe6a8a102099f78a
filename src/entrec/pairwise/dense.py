"""The similarities themselves, and the whole matrix of them at once: the reference that every faster way must match."""

from typing import Literal

import torch
from torch import Tensor

NamedSimilarity = Literal["dot", "sqeuclidean", "l1"]
Similarity = NamedSimilarity | tuple[Literal["lp"], float | Tensor]

# Without a gradient only the row sums are kept, so the matrix need only exist a few rows at a time: on a CPU as many as
# stay in its cache (2 to 3 times faster than a block of 2^24 at k = 4096), elsewhere enough to fill the device.
_ENTRIES_AT_ONCE = {"cpu": 2**16}
_ENTRIES_AT_ONCE_ELSEWHERE = 2**26


def logsumexp(a: Tensor, b: Tensor, similarity: Similarity, scale: float | Tensor, exclude_diagonal: bool) -> Tensor:
    """`entrec.pairwise_logsumexp` for inputs that have been checked and are in float32 or float64."""
    learnt = any(x.requires_grad for x in (a, b, scale, _exponent(similarity)) if isinstance(x, Tensor))
    diagonal = None
    if exclude_diagonal:
        diagonal = float("-inf")
    elif a is b and similarity == "sqeuclidean":
        diagonal = 0.0  # a point's distance to itself, which a difference of rounded squares need not give
    if torch.compiler.is_compiling() or (learnt and torch.is_grad_enabled()):
        return _block_logsumexp(a, b, similarity, scale, diagonal, 0)
    rows, block = a.shape[-2], _rows_at_once(b, similarity)
    blocks = [
        _block_logsumexp(a[..., start : start + block, :], b, similarity, scale, diagonal, start)
        for start in range(0, rows, block)
    ]
    return torch.cat(blocks, dim=-1)


def _rows_at_once(b: Tensor, similarity: Similarity) -> int:
    entries = _ENTRIES_AT_ONCE.get(b.device.type, _ENTRIES_AT_ONCE_ELSEWHERE)
    return max(1, entries // (b.numel() if _by_differences(similarity) else b[..., 0].numel()))


def _block_logsumexp(
    a: Tensor, b: Tensor, similarity: Similarity, scale: float | Tensor, diagonal: float | None, start: int
) -> Tensor:
    """The rows from `start` on; `diagonal` stands in for the similarities of equal indices."""
    # Autocast would turn the product into half precision, whatever the dtype of its inputs.
    with torch.autocast(device_type=a.device.type, enabled=False):
        s = scale * all_similarities(a, b, similarity)
    if diagonal is not None:
        row = torch.arange(start, start + a.shape[-2], device=a.device)
        s = s.masked_fill(row[:, None] == torch.arange(b.shape[-2], device=a.device), diagonal)
    return torch.logsumexp(s, dim=-1)


def similarity_of_difference(x: Tensor, similarity: Similarity) -> Tensor:
    """The s(a_i, b_i) of single pairs at scale 1, from x = a_i - b_i (so not "dot"); (..., d) -> (...)."""
    if similarity == "sqeuclidean":
        return -x.square().sum(dim=-1)
    if similarity == "l1":
        return -x.abs().sum(dim=-1)
    return -_powers(x, _exponent(similarity)).sum(dim=-1)


def all_similarities(a: Tensor, b: Tensor, similarity: Similarity) -> Tensor:
    """The s(a_i, b_j) of all pairs at scale 1, shape (..., k, m)."""
    if similarity == "dot":
        return a @ b.mT
    if similarity == "sqeuclidean":
        return -_squared_distances(a, b)
    if similarity == "l1":
        return -torch.cdist(a, b, p=1.0)
    if _by_differences(similarity):
        return similarity_of_difference(a.unsqueeze(-2) - b.unsqueeze(-3), similarity)
    p = float(_exponent(similarity))
    return -_powers(torch.cdist(a, b, p=p, compute_mode="donot_use_mm_for_euclid_dist"), p)


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a|^2 + |b|^2 - 2 a.b, centred and in float64: the terms cancel where a is close to b, where a kernel looks."""
    wide_a, wide_b = a.double(), b.double()
    origin = wide_b.detach().mean(dim=-2, keepdim=True)
    wide_a, wide_b = wide_a - origin, wide_b - origin
    norms = wide_a.square().sum(dim=-1).unsqueeze(-1) + wide_b.square().sum(dim=-1).unsqueeze(-2)
    return (norms - 2 * wide_a @ wide_b.mT).clamp_min(0).to(a.dtype)


def _by_differences(similarity: Similarity) -> bool:
    """All differences, of size k x m x d, are needed: cdist has no gradient in p, and its root overflows for small p."""
    p = _exponent(similarity)
    return isinstance(p, Tensor) or p < 0.5


def _exponent(similarity: Similarity) -> float | Tensor:
    return similarity[1] if isinstance(similarity, tuple) else 2.0


def _powers(x: Tensor, p: float | Tensor) -> Tensor:
    """|x|^p with a zero gradient at x = 0, where the derivative for p < 1 is infinite."""
    size = x.abs()
    return torch.where(size > 0, torch.where(size > 0, size, 1.0) ** p, 0.0)
