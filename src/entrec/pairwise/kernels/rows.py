"""Directions of rows, cosines of matching ones, and their gradients, in one launch each way."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from entrec.launch import launch

_ENTRIES = 4096  # that a program holds of either row


@triton.jit
def _products(a, b, row, n, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """1/|a|, 1/|b| and the cosine of each row; all zero of a zero row. Squares of scaled rows neither overflow nor vanish."""
    largest_a = tl.zeros([ROWS], tl.float32)
    largest_b = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        place = row[:, None] * d + column[None, :]
        largest_a = tl.maximum(largest_a, tl.max(tl.abs(tl.load(a + place, mask=inside, other=0.0)), 1))
        largest_b = tl.maximum(largest_b, tl.max(tl.abs(tl.load(b + place, mask=inside, other=0.0)), 1))
    unit_a = tl.where(largest_a > 0, 1.0 / tl.where(largest_a > 0, largest_a, 1.0), 0.0)
    unit_b = tl.where(largest_b > 0, 1.0 / tl.where(largest_b > 0, largest_b, 1.0), 0.0)
    aa = tl.zeros([ROWS], tl.float32)
    bb = tl.zeros([ROWS], tl.float32)
    ab = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        place = row[:, None] * d + column[None, :]
        x = tl.load(a + place, mask=inside, other=0.0) * unit_a[:, None]
        y = tl.load(b + place, mask=inside, other=0.0) * unit_b[:, None]
        aa += tl.sum(x * x, 1)
        bb += tl.sum(y * y, 1)
        ab += tl.sum(x * y, 1)
    inverse_a = tl.where(aa > 0, 1.0 / tl.sqrt(tl.where(aa > 0, aa, 1.0)), 0.0)
    inverse_b = tl.where(bb > 0, 1.0 / tl.sqrt(tl.where(bb > 0, bb, 1.0)), 0.0)
    return unit_a * inverse_a, unit_b * inverse_b, ab * inverse_a * inverse_b


@triton.jit(do_not_specialize=["n"])
def _cosines(a, b, out, n, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    _, _, cosine = _products(a, b, row, n, d, ROWS, WIDTH)
    tl.store(out + row, cosine, mask=row < n)


@triton.jit(do_not_specialize=["n"])
def _cosine_gradients(
    a, b, g, in_a, in_b, n, d, WANT_A: tl.constexpr, WANT_B: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """(b/|b| - cos a/|a|) / |a| for a, and the other way round for b."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inverse_a, inverse_b, cosine = _products(a, b, row, n, d, ROWS, WIDTH)
    weight = tl.load(g + row, mask=row < n, other=0.0)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        place = row[:, None] * d + column[None, :]
        x = tl.load(a + place, mask=inside, other=0.0) * inverse_a[:, None]
        y = tl.load(b + place, mask=inside, other=0.0) * inverse_b[:, None]
        if WANT_A:
            tl.store(in_a + place, (y - cosine[:, None] * x) * (weight * inverse_a)[:, None], mask=inside)
        if WANT_B:
            tl.store(in_b + place, (x - cosine[:, None] * y) * (weight * inverse_b)[:, None], mask=inside)


@triton.jit
def _inverse_length(z, row, n, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """1/|z| in two factors, either of which is a number; of a zero row zero."""
    largest = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        x = tl.load(z + row[:, None] * d + column[None, :], mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(x), 1))
    unit = tl.where(largest > 0, 1.0 / tl.where(largest > 0, largest, 1.0), 0.0)
    squares = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        x = tl.load(z + row[:, None] * d + column[None, :], mask=inside, other=0.0) * unit[:, None]
        squares += tl.sum(x * x, 1)
    return unit, tl.where(squares > 0, 1.0 / tl.sqrt(tl.where(squares > 0, squares, 1.0)), 0.0)


@triton.jit(do_not_specialize=["n"])
def _directions(z, out, n, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    unit, inverse = _inverse_length(z, row, n, d, ROWS, WIDTH)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        place = row[:, None] * d + column[None, :]
        x = tl.load(z + place, mask=inside, other=0.0) * unit[:, None] * inverse[:, None]
        tl.store(out + place, x, mask=inside)


@triton.jit(do_not_specialize=["n"])
def _directions_gradient(z, g, out, n, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """(g - (g.u) u) / |z|."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    unit, inverse = _inverse_length(z, row, n, d, ROWS, WIDTH)
    along = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        place = row[:, None] * d + column[None, :]
        u = tl.load(z + place, mask=inside, other=0.0) * unit[:, None] * inverse[:, None]
        along += tl.sum(tl.load(g + place, mask=inside, other=0.0) * u, 1)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < n) & (column[None, :] < d)
        place = row[:, None] * d + column[None, :]
        u = tl.load(z + place, mask=inside, other=0.0) * unit[:, None] * inverse[:, None]
        pulled = tl.load(g + place, mask=inside, other=0.0) - along[:, None] * u
        tl.store(out + place, pulled * inverse[:, None] * unit[:, None], mask=inside)


def directions(z: Tensor) -> Tensor:
    """Of contiguous float32 rows, (..., d) -> (..., d); a zero row stays zero."""
    out = torch.empty_like(z)
    n, d, rows, width = _sizes(z)
    launch(_directions, (triton.cdiv(n, rows),), z, out, n, d, ROWS=rows, WIDTH=width, num_warps=4)
    return out


def directions_gradient(z: Tensor, g: Tensor) -> Tensor:
    """In z, for the gradient g (..., d) in its directions."""
    out = torch.empty_like(z)
    n, d, rows, width = _sizes(z)
    launch(_directions_gradient, (triton.cdiv(n, rows),), z, g, out, n, d, ROWS=rows, WIDTH=width, num_warps=4)
    return out


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Of contiguous float32 rows; (..., d), (..., d) -> (...)."""
    out = a.new_empty(a.shape[:-1])
    n, d, rows, width = _sizes(a)
    launch(_cosines, (triton.cdiv(n, rows),), a, b, out, n, d, ROWS=rows, WIDTH=width, num_warps=4)
    return out


def cosine_gradients(a: Tensor, b: Tensor, g: Tensor, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    """In a and b, as wanted, for the gradient g (...) in the cosines."""
    in_a, in_b = (torch.empty_like(x) if want else None for x, want in zip((a, b), wanted, strict=True))
    n, d, rows, width = _sizes(a)
    launch(
        _cosine_gradients, (triton.cdiv(n, rows),),
        a, b, g, in_a, in_b, n, d,
        WANT_A=wanted[0], WANT_B=wanted[1], ROWS=rows, WIDTH=width, num_warps=4,
    )  # fmt: skip
    return in_a, in_b


def _sizes(x: Tensor) -> tuple[int, int, int, int]:
    d = x.shape[-1]
    width = min(1024, triton.next_power_of_2(d))
    return x.numel() // d, d, max(1, min(16, _ENTRIES // width)), width
