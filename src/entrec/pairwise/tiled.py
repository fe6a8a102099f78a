"""The sums and their gradients tile by tile, in plain PyTorch on any device: memory O(k x tile), nothing kept in between.

With s_ij the similarities, l_i = log sum_j exp s_ij and a row gradient g = dL/dl, every gradient that anyone asks for is

    dL/da_i = sum_j W_ij ds_ij/da_i,    W_ij = exp(s_ij) (g_i exp(-l_i) + g_j exp(-l_j)),

the first part of W for the sums over rows, the second for sums over columns, and both where the two sets are one (then W is
symmetric, and one half of the tiles gives everything).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from entrec.pairwise.similarity import (
    Similarity,
    all_similarities,
    by_coordinate,
    centred,
    differences,
    distances,
    exponent,
    squared_distances,
)


class Pairs(NamedTuple):
    """Which pairs are summed, and how.

    Args:
        similarity: any but "cosine", whose points are normalised before they come here.
        scale: multiplies it.
        exclude_diagonal: row i does not meet column i + offset.
        same: row i and column i + offset are the same point; with as many rows as columns both sets are one.
        offset: where the rows begin among the columns.
        bounded: no |s| exceeds the scale, and exp(-2 scale) is a number, so that no running maximum is needed.
        directions: the points are unit vectors whose gradient is projected on the sphere afterwards.
    """

    similarity: Similarity
    scale: float
    exclude_diagonal: bool = False
    same: bool = False
    offset: int = 0
    bounded: bool = False
    directions: bool = False


def diagonal_pulls(pairs: Pairs) -> bool:
    """Whether the pairs on the diagonal have a part in the gradient.

    A direction's similarity to itself is constant. Its pull is along the point, so the projection would remove it, but it can
    be a thousand times the rest, and its rounding would stay.
    """
    return not (pairs.exclude_diagonal or (pairs.same and pairs.directions))


class Weighing(NamedTuple):
    """The log-sums l of some rows (or columns) and the loss's gradient g in them, each (..., k)."""

    log_sums: Tensor
    gradient: Tensor


class Gradients(NamedTuple):
    """Of the rows, the columns and a learnt exponent; None where not asked for."""

    rows: Tensor | None
    columns: Tensor | None
    exponent: Tensor | None


def log_sums(a: Tensor, b: Tensor, pairs: Pairs, edge: int | None) -> Tensor:
    """The l_i; (..., k, d), (..., m, d) -> (..., k). `edge` is the side of a tile, None for the whole matrix at once."""
    total, top = a.new_zeros(a.shape[:-1]), a.new_full(a.shape[:-1], pairs.scale if pairs.bounded else float("-inf"))
    a, b = _prepared(a, b, pairs)
    half = pairs.bounded and _one_set(a, b, pairs)
    for i, j in _tiles(a.shape[-2], b.shape[-2], edge, half):
        s = _similarities(a, b, i, j, pairs, total.dtype)
        if not pairs.bounded:
            _raise_top(total, top, i, s.amax(dim=-1))
        e = s.sub_(_shift(top[..., i]).unsqueeze(-1)).exp_()
        total[..., i] += e.sum(dim=-1)
        if half and j.start > i.start:
            total[..., j] += e.sum(dim=-2)
    return total.log_().add_(_shift(top))


def _raise_top(total: Tensor, top: Tensor, i: slice, largest: Tensor) -> None:
    """Refer the sums of rows i to a larger maximum.

    So a sum is rounded as a sum. Added as logarithms, every tile would round it by an eps of the log-sum's own size, a hundred
    times as much at a temperature of 0.01.
    """
    before, largest = top[..., i], torch.maximum(largest, top[..., i])
    total[..., i] *= torch.where(before == largest, 0.0, before - largest).exp_()  # equal ones may both be infinite
    top[..., i] = largest


def _shift(top: Tensor) -> Tensor:
    """The maximum, or 0 where it is infinite: where no pair has been met, or a similarity is beyond all numbers."""
    return torch.where(top.isinf(), 0.0, top)


def gradients(
    a: Tensor,
    b: Tensor,
    pairs: Pairs,
    rows: Weighing | None,
    columns: Weighing | None,
    wanted: tuple[bool, bool, bool],
    edge: int | None,
) -> Gradients:
    """The gradients in a, b and a learnt exponent, as wanted; with both weighings and one set, a's is that set's."""
    dtype = a.dtype
    a, b = _prepared(a, b, pairs)
    both = rows is not None and columns is not None
    half = both and _one_set(a, b, pairs)
    grad_a = torch.zeros_like(a) if wanted[0] else None
    grad_b = torch.zeros_like(b) if wanted[1] else None
    grad_p = torch.zeros((), dtype=a.dtype, device=a.device) if wanted[2] else None
    for i, j in _tiles(a.shape[-2], b.shape[-2], edge, half):
        mirrored = half and j.start > i.start
        ask = (wanted[0], wanted[1] or mirrored, wanted[2])
        tile = _tile_gradients(a, b, i, j, pairs, dtype, _part(rows, i), _part(columns, j), ask)
        if grad_a is not None and tile.rows is not None:
            grad_a[..., i, :] += tile.rows
        if mirrored and grad_a is not None and tile.columns is not None:
            grad_a[..., j, :] += tile.columns
        if grad_b is not None and tile.columns is not None:
            grad_b[..., j, :] += tile.columns
        if grad_p is not None and tile.exponent is not None:
            # With both weighings W counts every pair twice, unless its mirror image is not visited.
            grad_p += tile.exponent / 2 if both and not mirrored else tile.exponent
    return Gradients(*(x if x is None else x.mul_(pairs.scale).to(dtype) for x in (grad_a, grad_b, grad_p)))


def _tile_gradients(
    a: Tensor,
    b: Tensor,
    i: slice,
    j: slice,
    pairs: Pairs,
    dtype: torch.dtype,
    rows: Weighing | None,
    columns: Weighing | None,
    wanted: tuple[bool, bool, bool],
) -> Gradients:
    """What one tile adds to the gradients, at scale 1."""
    x, y = a[..., i, :], b[..., j, :]
    if pairs.similarity in ("dot", "sqeuclidean"):
        w = _weights(_similarities(a, b, i, j, pairs, dtype), pairs, rows, columns).to(x.dtype)
        if not diagonal_pulls(pairs):
            _fill_diagonal(w, i, j, pairs, 0.0)
        in_x, in_y = (w @ y if wanted[0] else None), (w.mT @ x if wanted[1] else None)
        if pairs.similarity == "sqeuclidean":  # -|x-y|^2 pulls x towards y
            in_x = None if in_x is None else in_x.sub_(w.sum(dim=-1).unsqueeze(-1) * x).mul_(2)
            in_y = None if in_y is None else in_y.sub_(w.sum(dim=-2).unsqueeze(-1) * y).mul_(2)
        return Gradients(in_x, in_y, None)
    if by_coordinate(pairs.similarity, x.device):
        w = _weights(_similarities(a, b, i, j, pairs, dtype), pairs, rows, columns)
        return _pull_of_powers(x, y, w, exponent(pairs.similarity), wanted)
    p = float(exponent(pairs.similarity))
    distance = distances(x, y, p)
    w = _weights(_with_diagonal(distance.pow(p).mul_(-pairs.scale), i, j, pairs), pairs, rows, columns)
    w = w.mul_(-p).mul_(distance.pow(p - 1).masked_fill_(distance == 0, 0.0)) if p != 1 else w.neg_()
    pull = torch.ops.aten._cdist_backward  # of autograd's own, which is not there inside a custom operator
    return Gradients(
        pull(w, x, y, p, distance) if wanted[0] else None,
        pull(w.mT.contiguous(), y, x, p, distance.mT.contiguous()) if wanted[1] else None,
        None,
    )


def _pull_of_powers(x: Tensor, y: Tensor, w: Tensor, p: float | Tensor, wanted: tuple[bool, bool, bool]) -> Gradients:
    """From the gradients -p |z|^(p-1) sign z and -|z|^p log |z| of -|z|^p, each zero at z = 0, a coordinate at a time."""
    in_x: list[Tensor] = []
    in_y: list[Tensor] = []
    in_p = torch.zeros((), dtype=w.dtype, device=w.device)
    for z in differences(x, y):
        size = torch.where(z == 0, 1.0, z.abs())
        if wanted[0] or wanted[1]:
            pulled = (size ** (p - 1)).mul_(z.sign()).mul_(w).mul_(-p)
            in_x += [pulled.sum(dim=-1)] if wanted[0] else []
            in_y += [-pulled.sum(dim=-2)] if wanted[1] else []
        if wanted[2]:
            in_p -= (torch.where(z == 0, 0.0, size**p * size.log()) * w).sum()
    return Gradients(
        torch.stack(in_x, dim=-1) if wanted[0] else None,
        torch.stack(in_y, dim=-1) if wanted[1] else None,
        in_p if wanted[2] else None,
    )


def _prepared(a: Tensor, b: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    return centred(a, b) if pairs.similarity == "sqeuclidean" else (a, b)


def _one_set(a: Tensor, b: Tensor, pairs: Pairs) -> bool:
    return pairs.same and a.shape[-2] == b.shape[-2]


def _tiles(k: int, m: int, edge: int | None, half: bool) -> Iterator[tuple[slice, slice]]:
    """Row and column ranges; of a symmetric matrix those on and above the diagonal."""
    edge = edge or max(k, m)
    height, breadth = edge * max(1, edge // m), edge * max(1, edge // k)  # a thin matrix has long tiles
    for i in range(0, k, height):
        for j in range(i if half else 0, m, breadth):
            yield slice(i, min(i + height, k)), slice(j, min(j + breadth, m))


def _similarities(a: Tensor, b: Tensor, i: slice, j: slice, pairs: Pairs, dtype: torch.dtype) -> Tensor:
    """The scaled similarities of one tile, with what stands in on the diagonal; a new tensor that may be written to."""
    a, b = a[..., i, :], b[..., j, :]
    if pairs.similarity == "dot":
        s = (a @ b.mT).mul_(pairs.scale)
    elif pairs.similarity == "sqeuclidean":
        s = squared_distances(a, b).to(dtype).mul_(-pairs.scale)
    else:
        s = pairs.scale * all_similarities(a, b, pairs.similarity)
    return _with_diagonal(s, i, j, pairs)


def _with_diagonal(s: Tensor, i: slice, j: slice, pairs: Pairs) -> Tensor:
    if pairs.exclude_diagonal:
        value = float("-inf")
    elif pairs.same and pairs.similarity == "sqeuclidean":
        value = 0.0  # a point's distance to itself, which a difference of rounded squares need not give
    else:
        return s
    return _fill_diagonal(s, i, j, pairs, value)


def _fill_diagonal(s: Tensor, i: slice, j: slice, pairs: Pairs, value: float) -> Tensor:
    shift = i.start + pairs.offset - j.start
    if -s.shape[-2] < shift < s.shape[-1]:
        s.diagonal(shift, -2, -1).fill_(value)
    return s


def _weights(s: Tensor, pairs: Pairs, rows: Weighing | None, columns: Weighing | None) -> Tensor:
    """W from s, which is overwritten."""
    if pairs.bounded and rows is not None and columns is not None:  # one exponential per pair instead of two
        by_row, by_column = (x.gradient * (pairs.scale - x.log_sums).exp() for x in (rows, columns))
        return s.sub_(pairs.scale).exp_().mul_(by_row.unsqueeze(-1) + by_column.unsqueeze(-2))
    if columns is None:
        assert rows is not None
        return s.sub_(rows.log_sums.unsqueeze(-1)).exp_().mul_(rows.gradient.unsqueeze(-1))
    w = (s - columns.log_sums.unsqueeze(-2)).exp_().mul_(columns.gradient.unsqueeze(-2))
    return w if rows is None else w.add_(_weights(s, pairs, rows, None))


def _part(x: Weighing | None, rows: slice) -> Weighing | None:
    return None if x is None else Weighing(x.log_sums[..., rows], x.gradient[..., rows])
