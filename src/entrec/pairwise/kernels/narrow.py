"""Log-sums of exp(-scale sum |a-b|^p) and their gradients in few dimensions, where the sums over pairs are most of the work.

As in `distances`, from the differences themselves. A thread has two rows of its own and meets the columns one after the other,
so no sum crosses threads. A program has a share of the columns, so that there are enough of them, and the shares are joined by
a second kernel, always in the same order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from entrec.launch import launch
from entrec.pairwise.kernels.powers import kind, power, slope
from entrec.pairwise.tiled import Pairs, Weighing

WIDEST = 16  # dimensions, all of which a gradient keeps in registers: at 25 they spill
LOG2E = tl.constexpr(1.4426950408889634)
_ROWS = 128  # of a tile, one for each thread of four warps; a program has two tiles, one below the other
_COLUMNS = 4  # of a tile; on an H200 as fast as 8 and 16, which take more registers, for some exponents too many
_ALIGNED = 16  # columns: where shares begin at multiples of it, and there is a multiple of it, four are read at once
_PROGRAMS = 1536  # that keep a large card busy


@triton.jit
def _similarities(
    x, y, rows, columns, k, m, p, scale, D: tl.constexpr, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """-scale sum |x-y|^p of two blocks of pairs, a column in each row of them: what one thread holds is a row's.

    The second block has the rows ROWS further on, so that a column is read once for two rows: reading is what takes longest.
    """
    s = tl.zeros([COLUMNS, ROWS], tl.float32)
    t = tl.zeros([COLUMNS, ROWS], tl.float32)
    for c in tl.static_range(D):
        b = tl.load(y + c * m + columns, mask=columns < m, other=0.0)[:, None]
        s += power(tl.load(x + c * k + rows, mask=rows < k, other=0.0)[None, :] - b, p, KIND)
        t += power(tl.load(x + c * k + rows + ROWS, mask=rows + ROWS < k, other=0.0)[None, :] - b, p, KIND)
    return -scale * s, -scale * t


@triton.jit
def _with(s, outside, top, total):
    """A running log-sum, as its largest exponent and the rest of it, with a block more."""
    s = tl.where(outside, float("-inf"), s)
    higher = tl.maximum(top, tl.max(s, 0))
    shift = tl.where(higher == float("-inf"), 0.0, higher)
    return higher, total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.exp2((s - shift[None, :]) * LOG2E), 0)


@triton.jit(do_not_specialize=["k", "offset"])
def _log_sums(
    x, y, out, k, m, share, p, scale, offset,
    D: tl.constexpr, EXCLUDE: tl.constexpr, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Rows of log sum_j exp over a share of the columns."""
    rows = tl.program_id(0) * 2 * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * share
    problem = tl.program_id(2).to(tl.int64)
    x += problem * k * D
    y += problem * m * D
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    top_2 = tl.full([ROWS], float("-inf"), tl.float32)
    total_2 = tl.zeros([ROWS], tl.float32)
    for start in range(first, tl.minimum(first + share, m), COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        s, t = _similarities(x, y, rows, columns, k, m, p, scale, D, KIND, ROWS, COLUMNS)
        outside = (columns[:, None] >= m) | (EXCLUDE & (rows[None, :] + offset == columns[:, None]))
        top, total = _with(s, outside, top, total)
        outside = (columns[:, None] >= m) | (EXCLUDE & (rows[None, :] + ROWS + offset == columns[:, None]))
        top_2, total_2 = _with(t, outside, top_2, total_2)
    out += (problem * tl.num_programs(1) + tl.program_id(1)) * k
    tl.store(out + rows, top + tl.log(total), mask=rows < k)
    tl.store(out + rows + ROWS, top_2 + tl.log(total_2), mask=rows + ROWS < k)


@triton.jit(do_not_specialize=["k", "shares"])
def _joined(parts, out, k, shares, ROWS: tl.constexpr):
    """Rows of log sum_s exp over shares, (problems, shares, k) -> (problems, k)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    problem = tl.program_id(1).to(tl.int64)
    parts += problem * shares * k
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for _ in range(shares):
        x = tl.load(parts + rows, mask=rows < k, other=float("-inf"))
        higher = tl.maximum(top, x)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2((top - shift) * LOG2E) + tl.exp2((x - shift) * LOG2E)
        top = higher
        parts += k
    tl.store(out + problem * k + rows, top + tl.log(total), mask=rows < k)


@triton.jit
def _weights(
    s, rows, columns, k, m, row_sums, row_gradient, column_sums, column_gradient, offset,
    BY_ROW: tl.constexpr, BY_COLUMN: tl.constexpr, EXCLUDE: tl.constexpr,
):  # fmt: skip
    """W_ij = g_i exp(s_ij - l_i) [by row] + g_j exp(s_ij - l_j) [by column] of a block of pairs."""
    w = tl.zeros_like(s)
    if BY_ROW:
        row_sum = tl.load(row_sums + rows, mask=rows < k, other=0.0)[None, :]
        w += tl.exp2((s - row_sum) * LOG2E) * tl.load(row_gradient + rows, mask=rows < k, other=0.0)[None, :]
    if BY_COLUMN:
        column_sum = tl.load(column_sums + columns, mask=columns < m, other=0.0)[:, None]
        w += tl.exp2((s - column_sum) * LOG2E) * tl.load(column_gradient + columns, mask=columns < m, other=0.0)[:, None]
    if EXCLUDE:
        w = tl.where(rows[None, :] + offset == columns[:, None], 0.0, w)
    return tl.where((rows[None, :] < k) & (columns[:, None] < m), w, 0.0)


@triton.jit(do_not_specialize=["k", "offset"])
def _gradient(
    x, y, row_sums, row_gradient, column_sums, column_gradient, out, k, m, share, p, scale, offset,
    D: tl.constexpr, HELD: tl.constexpr, BY_ROW: tl.constexpr, BY_COLUMN: tl.constexpr, EXCLUDE: tl.constexpr,
    KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """sum_j W_ij ds_ij/dx_i over a share of the columns."""
    rows = tl.program_id(0) * 2 * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * share
    problem = tl.program_id(2).to(tl.int64)
    x += problem * k * D
    y += problem * m * D
    row_sums += problem * k
    row_gradient += problem * k
    column_sums += problem * m
    column_gradient += problem * m
    dims = tl.arange(0, HELD)
    found = tl.zeros([HELD, ROWS], tl.float32)
    found_2 = tl.zeros([HELD, ROWS], tl.float32)
    for start in range(first, tl.minimum(first + share, m), COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        s, t = _similarities(x, y, rows, columns, k, m, p, scale, D, KIND, ROWS, COLUMNS)
        w = _weights(
            s, rows, columns, k, m, row_sums, row_gradient, column_sums, column_gradient, offset, BY_ROW, BY_COLUMN, EXCLUDE
        )
        v = _weights(
            t, rows + ROWS, columns, k, m, row_sums, row_gradient, column_sums, column_gradient, offset,
            BY_ROW, BY_COLUMN, EXCLUDE,
        )  # fmt: skip
        for c in tl.static_range(D):
            b = tl.load(y + c * m + columns, mask=columns < m, other=0.0)[:, None]
            a = tl.load(x + c * k + rows, mask=rows < k, other=0.0)[None, :]
            pull = tl.sum(w * slope(a - b, p, KIND), 0)
            found += tl.where(dims[:, None] == c, pull[None, :], 0.0)  # which of them is known when this is compiled
            a = tl.load(x + c * k + rows + ROWS, mask=rows + ROWS < k, other=0.0)[None, :]
            pull = tl.sum(v * slope(a - b, p, KIND), 0)
            found_2 += tl.where(dims[:, None] == c, pull[None, :], 0.0)
    out += (problem * tl.num_programs(1) + tl.program_id(1)) * D * k
    at = dims[:, None] * k + rows[None, :]
    tl.store(out + at, -scale * p * found, mask=(dims[:, None] < D) & (rows[None, :] < k))
    tl.store(out + at + ROWS, -scale * p * found_2, mask=(dims[:, None] < D) & (rows[None, :] + ROWS < k))


def log_sums(x: Tensor, y: Tensor, p: float, pairs: Pairs) -> Tensor:
    """The l_i of (problems, d, k) and (problems, d, m) float32 points."""
    (problems, d, k), m = x.shape, y.shape[2]
    blocks, shares, share = _shares(k, m, problems)
    parts = torch.empty((problems, shares, k), dtype=torch.float32, device=x.device)
    launch(
        _log_sums, (blocks, shares, problems),
        x, y, parts, k, m, share, p, pairs.scale, pairs.offset,
        D=d, EXCLUDE=pairs.exclude_diagonal, KIND=kind(p), ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4,
    )  # fmt: skip
    if shares == 1:
        return parts[:, 0]
    out = torch.empty((problems, k), dtype=torch.float32, device=x.device)
    launch(_joined, (triton.cdiv(k, _ROWS), problems), parts, out, k, shares, ROWS=_ROWS, num_warps=4)
    return out


def pull(x: Tensor, y: Tensor, p: float, rows: Weighing | None, columns: Weighing | None, offset: int, pairs: Pairs) -> Tensor:
    """What the columns y add to the gradient of the rows x; both, and the result, (problems, d, k)."""
    (problems, d, k), m = x.shape, y.shape[2]
    blocks, shares, share = _shares(k, m, problems)
    out = torch.empty((problems, shares, d, k), dtype=torch.float32, device=x.device)
    launch(
        _gradient, (blocks, shares, problems),
        x, y, *(rows or (x, x)), *(columns or (x, x)), out, k, m, share, p, pairs.scale, offset,
        D=d, HELD=triton.next_power_of_2(d), BY_ROW=rows is not None, BY_COLUMN=columns is not None,
        EXCLUDE=pairs.exclude_diagonal, KIND=kind(p), ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return out.sum(dim=1)


def _shares(k: int, m: int, problems: int) -> tuple[int, int, int]:
    """Blocks of rows, shares of the columns, and columns in a share."""
    blocks = triton.cdiv(k, 2 * _ROWS)
    wanted = triton.cdiv(_PROGRAMS, blocks * problems)
    share = triton.cdiv(triton.cdiv(m, _ALIGNED), wanted) * _ALIGNED
    return blocks, triton.cdiv(m, share), share
