"""Log-sums of exp(scale a.b) and their gradients for any two sets of rows, on the matrix units.

A row is handed to the matrix units as halves: divided by a power of two so that its largest entry is at most 64, rounded
to float16, and in full precision with a second float16 for what the rounding left over. Three products of such halves are
good to 22 bits, at a third of the speed of one. Sums are float32 throughout.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from entrec.cards import has_large_blocks
from entrec.launch import launch
from entrec.pairwise.tiled import Gradients, Pairs, Weighing, diagonal_pulls

LOG2E = tl.constexpr(1.4426950408889634)
_LARGEST = 64.0  # of a scaled row: far from the ends of float16, and products of rows far from those of float32
_WIDEST = 128  # columns that a program holds at once; wider rows come in several parts
_TOP = 8192.0  # of the weights: their largest is brought here before it is rounded to float16


@triton.jit(do_not_specialize=["k"])
def _split_rows(
    source,
    halves,
    rest,
    size,
    k,
    padded,
    d,
    width,
    LARGEST: tl.constexpr,
    IEEE: tl.constexpr,
    ROWS: tl.constexpr,
    PART: tl.constexpr,
):
    """Rows as float16 halves of width `width`, and the power of two that each was divided by."""
    problem = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    source += problem * k * d
    largest = tl.zeros([ROWS], tl.float32)
    for start in range(0, width, PART):
        columns = start + tl.arange(0, PART)
        inside = (rows[:, None] < k) & (columns[None, :] < d)
        x = tl.load(source + rows[:, None].to(tl.int64) * d + columns[None, :], mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(x), 1))
    power = tl.where(largest > 0, tl.exp2(tl.ceil(tl.log2(tl.where(largest > 0, largest, 1.0)))), 1.0)
    for start in range(0, width, PART):
        columns = start + tl.arange(0, PART)
        inside = (rows[:, None] < k) & (columns[None, :] < d)
        x = tl.load(source + rows[:, None].to(tl.int64) * d + columns[None, :], mask=inside, other=0.0)
        x = x / power[:, None] * LARGEST
        half = x.to(tl.float16)
        place = (problem * padded + rows[:, None]) * width + columns[None, :]
        tl.store(halves + place, half)
        if IEEE:
            tl.store(rest + place, (x - half.to(tl.float32)).to(tl.float16))
    tl.store(size + problem * padded + rows, tl.where(rows < k, power, 0.0))


@triton.jit
def _tile(source, points, width, start, PART: tl.constexpr):
    """One part of some points, one point a row."""
    return tl.load(source + points[:, None] * width + start + tl.arange(0, PART)[None, :])


@triton.jit
def _products(
    a,
    a_rest,
    x,
    x_rest,
    y,
    y_rest,
    rows,
    columns,
    width,
    unit,
    IEEE: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
):
    """All scaled dot products of a block of rows and a block of columns; a and a_rest are the rows' first part.

    Parts are added up outside of the matrix units, which cut their sums off where others round them. (By a factor, or the
    compiler would let them sum it all again.)
    """
    b = _tile(y, columns, width, 0, PART)
    if IEEE:
        s = tl.dot(a, _tile(y_rest, columns, width, 0, PART).T)
        s = tl.dot(a_rest, b.T, s)
        s = tl.dot(a, b.T, s) * unit
    else:
        s = tl.dot(a, b.T) * unit
    for start in range(PART, PART * PARTS, PART):
        c, d = _tile(x, rows, width, start, PART), _tile(y, columns, width, start, PART)
        if IEEE:
            t = tl.dot(c, _tile(y_rest, columns, width, start, PART).T)
            t = tl.dot(_tile(x_rest, rows, width, start, PART), d.T, t)
            s += tl.dot(c, d.T, t) * unit
        else:
            s += tl.dot(c, d.T) * unit
    return s, b


@triton.jit(do_not_specialize=["k", "m", "offset"])
def _log_sums(
    x,
    x_rest,
    x_size,
    y,
    y_rest,
    y_size,
    out,
    k,
    m,
    padded_k,
    padded_m,
    width,
    unit,
    bound,
    offset,
    EXCLUDE: tl.constexpr,
    BOUNDED: tl.constexpr,
    IEEE: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Rows of log sum_j exp, by a running maximum of the exponents, or by a bound on them where there is one."""
    problem = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x += problem * padded_k * width
    x_rest += problem * padded_k * width
    y += problem * padded_m * width
    y_rest += problem * padded_m * width
    y_size += problem * padded_m
    row_size = tl.load(x_size + problem * padded_k + rows)
    a = _tile(x, rows, width, 0, PART)
    a_rest = _tile(x_rest, rows, width, 0, PART) if IEEE else a
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(0, m, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        s, _ = _products(a, a_rest, x, x_rest, y, y_rest, rows, columns, width, unit, IEEE, PART, PARTS)
        s = s * row_size[:, None] * tl.load(y_size + columns)[None, :]
        outside = columns[None, :] >= m
        if EXCLUDE:
            outside |= rows[:, None] + offset == columns[None, :]
        s = tl.where(outside, float("-inf"), s)
        if BOUNDED:
            total += tl.sum(tl.exp2((s - bound) * LOG2E), 1)
        else:
            higher = tl.maximum(top, tl.max(s, 1))
            shift = tl.where(higher == float("-inf"), 0.0, higher)
            total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.exp2((s - shift[:, None]) * LOG2E), 1)
            top = higher
    if BOUNDED:
        top = tl.zeros([ROWS], tl.float32) + bound
    tl.store(out + problem * k + rows, top + tl.log(total), mask=rows < k)


@triton.jit(do_not_specialize=["k", "m", "offset"])
def _gradient(
    x,
    x_rest,
    x_size,
    y,
    y_rest,
    y_size,
    row_sums,
    row_gradient,
    column_sums,
    column_gradient,
    up,
    down,
    out,
    k,
    m,
    d,
    padded_k,
    padded_m,
    width,
    unit,
    offset,
    BY_ROW: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    EXCLUDE: tl.constexpr,
    IEEE: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sum_j W_ij y_j, with W_ij = g_i exp(s_ij - l_i) [by row] + g_j exp(s_ij - l_j) [by column]; one part of the columns."""
    problem = tl.program_id(1).to(tl.int64)
    mine = tl.program_id(2) * PART
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x += problem * padded_k * width
    x_rest += problem * padded_k * width
    y += problem * padded_m * width
    y_rest += problem * padded_m * width
    y_size += problem * padded_m
    column_sums += problem * m
    column_gradient += problem * m
    row_size = tl.load(x_size + problem * padded_k + rows)
    grow = tl.load(up + problem)
    shrink = tl.load(down + problem)
    if BY_ROW:
        row_sum = tl.load(row_sums + problem * k + rows, mask=rows < k, other=0.0)
        row_weight = tl.load(row_gradient + problem * k + rows, mask=rows < k, other=0.0) * grow
    a = _tile(x, rows, width, 0, PART)
    a_rest = _tile(x_rest, rows, width, 0, PART) if IEEE else a
    acc = tl.zeros([ROWS, PART], tl.float32)
    for start in range(0, m, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        s, b = _products(a, a_rest, x, x_rest, y, y_rest, rows, columns, width, unit, IEEE, PART, PARTS)
        column_size = tl.load(y_size + columns)
        s = s * row_size[:, None] * column_size[None, :]
        if BY_ROW:
            w = tl.exp2((s - row_sum[:, None]) * LOG2E) * row_weight[:, None]
        if BY_COLUMN:
            column_sum = tl.load(column_sums + columns, mask=columns < m, other=0.0)
            column_weight = tl.load(column_gradient + columns, mask=columns < m, other=0.0) * grow
            back = tl.exp2((s - column_sum[None, :]) * LOG2E) * column_weight[None, :]
            w = w + back if BY_ROW else back
        outside = columns[None, :] >= m
        if EXCLUDE:
            outside |= rows[:, None] + offset == columns[None, :]
        w = tl.where(outside, 0.0, w * column_size[None, :])
        half = w.to(tl.float16)
        if PARTS > 1:
            b = _tile(y, columns, width, mine, PART)
        if IEEE:
            part = tl.dot(half, _tile(y_rest, columns, width, mine, PART))
            part = tl.dot((w - half.to(tl.float32)).to(tl.float16), b, part)
            part = tl.dot(half, b, part)
            acc += part * shrink  # as in the products: the matrix units sum one tile only
        else:
            acc = tl.dot(half, b, acc)
    columns = mine + tl.arange(0, PART)
    inside = (rows[:, None] < k) & (columns[None, :] < d)
    out += problem * k * d
    tl.store(out + rows[:, None] * d + columns[None, :], acc if IEEE else acc * shrink, mask=inside)


@triton.jit
def _largest(x, n, BLOCK: tl.constexpr):
    largest = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        place = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.abs(tl.load(x + place, mask=place < n, other=0.0)))
    return tl.max(largest, 0)


@triton.jit(do_not_specialize=["k", "m"])
def _headroom(
    row_gradient,
    column_gradient,
    y_size,
    up,
    down,
    k,
    m,
    padded_m,
    scale,
    BY_ROW: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    TOP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """By what the weights are multiplied so that the largest is at most TOP, and by what the result is brought back."""
    problem = tl.program_id(0).to(tl.int64)
    largest = 0.0
    if BY_ROW:
        largest += _largest(row_gradient + problem * k, k, BLOCK)
    if BY_COLUMN:
        largest += _largest(column_gradient + problem * m, m, BLOCK)
    largest *= _largest(y_size + problem * padded_m, m, BLOCK)
    factor = tl.where(largest > 0, TOP / tl.where(largest > 0, largest, 1.0), 1.0)
    tl.store(up + problem, factor)
    tl.store(down + problem, scale / factor)


class _Halves(NamedTuple):
    """Points as the matrix units take them, padded with zeros to whole blocks."""

    halves: Tensor
    rest: Tensor  # the halves again where they are not wanted
    size: Tensor
    rows: int
    padded: int
    width: int
    part: int


class _Blocks(NamedTuple):
    rows: int
    columns: int
    warps: int
    stages: int


_FAST = _Blocks(128, 64, 8, 3)
_IEEE = _Blocks(128, 64, 8, 2)
_IEEE_SMALL = _Blocks(64, 32, 4, 2)  # for cards with little shared memory
_WIDE = _Blocks(64, 64, 4, 1)  # where rows come in several parts, which all want their place in it
_WIDE_SMALL = _Blocks(64, 32, 4, 1)
_PADDING = 128


def log_sums(a: Tensor, b: Tensor, pairs: Pairs, ieee: bool) -> Tensor:
    """The l_i of (problems, k, d) and (problems, m, d) float32 points."""
    x = _split(a, ieee)
    y = x if a is b else _split(b, ieee)
    out = torch.empty(a.shape[:2], dtype=torch.float32, device=a.device)
    blocks = _blocks(x, ieee)
    launch(
        _log_sums, (triton.cdiv(x.rows, blocks.rows), a.shape[0]),
        *x[:3], *y[:3], out, x.rows, y.rows, x.padded, y.padded, x.width, pairs.scale / _LARGEST**2, pairs.scale, pairs.offset,
        EXCLUDE=pairs.exclude_diagonal, BOUNDED=pairs.bounded, **_shape(x, blocks, ieee),
    )  # fmt: skip
    return out


def gradients(
    a: Tensor, b: Tensor, pairs: Pairs, rows: Weighing | None, columns: Weighing | None, wanted: tuple[bool, bool], ieee: bool
) -> Gradients:
    """The gradients in a and b, as wanted."""
    x = _split(a, ieee)
    y = x if a is b else _split(b, ieee)
    in_a = _pull(a, x, y, rows, columns, pairs.offset, pairs, ieee) if wanted[0] else None
    in_b = _pull(b, y, x, columns, rows, -pairs.offset, pairs, ieee) if wanted[1] else None
    return Gradients(in_a, in_b, None)


def _pull(
    a: Tensor, x: _Halves, y: _Halves, rows: Weighing | None, columns: Weighing | None, offset: int, pairs: Pairs, ieee: bool
) -> Tensor:
    """What the columns y add to the gradient of the rows x."""
    blocks = _blocks(x, ieee)
    out, empty = torch.empty_like(a), x.size
    up, down = a.new_empty((2, a.shape[0]))
    launch(
        _headroom, (a.shape[0],),
        rows.gradient if rows else empty, columns.gradient if columns else empty, y.size, up, down, x.rows, y.rows, y.padded,
        pairs.scale / _LARGEST, BY_ROW=rows is not None, BY_COLUMN=columns is not None, TOP=_TOP, BLOCK=1024, num_warps=4,
    )  # fmt: skip
    launch(
        _gradient, (triton.cdiv(x.rows, blocks.rows), a.shape[0], x.width // x.part),
        *x[:3], *y[:3], *(rows or (empty, empty)), *(columns or (empty, empty)), up, down, out,
        x.rows, y.rows, a.shape[-1], x.padded, y.padded, x.width, pairs.scale / _LARGEST**2, offset,
        BY_ROW=rows is not None, BY_COLUMN=columns is not None, EXCLUDE=not diagonal_pulls(pairs), **_shape(x, blocks, ieee),
    )  # fmt: skip
    return out


def _split(points: Tensor, ieee: bool) -> _Halves:
    problems, k, d = points.shape
    part = min(_WIDEST, max(16, triton.next_power_of_2(d)))
    width = triton.cdiv(d, part) * part
    padded = triton.cdiv(k, _PADDING) * _PADDING
    halves = torch.empty((problems, padded, width), dtype=torch.float16, device=points.device)
    rest = torch.empty_like(halves) if ieee else halves
    size = torch.empty((problems, padded), dtype=torch.float32, device=points.device)
    rows = 16
    launch(
        _split_rows, (padded // rows, problems),
        points, halves, rest, size, k, padded, d, width,
        LARGEST=_LARGEST, IEEE=ieee, ROWS=rows, PART=part,
    )  # fmt: skip
    return _Halves(halves, rest, size, k, padded, width, part)


def _blocks(x: _Halves, ieee: bool) -> _Blocks:
    large = has_large_blocks(x.halves)
    if x.width > x.part:
        return _WIDE if large else _WIDE_SMALL
    if not ieee:
        return _FAST
    return _IEEE if large else _IEEE_SMALL


def _shape(x: _Halves, blocks: _Blocks, ieee: bool) -> dict[str, int | bool]:
    return {
        "IEEE": ieee,
        "PART": x.part,
        "PARTS": x.width // x.part,
        "ROWS": blocks.rows,
        "COLUMNS": blocks.columns,
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }
