"""Cosines of matching rows and their gradient, in one launch each way."""

import torch
import triton
import triton.language as tl
from torch import Tensor

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
def _gradients(a, b, g, in_a, in_b, n, d, WANT_A: tl.constexpr, WANT_B: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
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


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Of contiguous float32 rows; (..., d), (..., d) -> (...)."""
    out = a.new_empty(a.shape[:-1])
    n, d, rows, width = _sizes(a)
    _cosines[(triton.cdiv(n, rows),)](a, b, out, n, d, ROWS=rows, WIDTH=width, num_warps=4)
    return out


def gradients(a: Tensor, b: Tensor, g: Tensor, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    """In a and b, as wanted, for the gradient g (...) in the cosines."""
    in_a, in_b = (torch.empty_like(x) if want else None for x, want in zip((a, b), wanted, strict=True))
    n, d, rows, width = _sizes(a)
    _gradients[(triton.cdiv(n, rows),)](
        a, b, g.contiguous(), in_a, in_b, n, d, WANT_A=wanted[0], WANT_B=wanted[1], ROWS=rows, WIDTH=width, num_warps=4
    )
    return in_a, in_b


def _sizes(x: Tensor) -> tuple[int, int, int, int]:
    d = x.shape[-1]
    width = min(1024, triton.next_power_of_2(d))
    return x.numel() // d, d, max(1, min(16, _ENTRIES // width)), width
