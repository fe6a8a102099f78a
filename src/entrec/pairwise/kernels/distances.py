"""Log-sums of exp(-scale sum |a-b|^p) and their gradients, from the differences themselves.

No matrix unit helps here: the differences of close points, where a kernel looks, would drown in the rounding of products.
Points come column by column, so that a program reads one coordinate of many points at once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from entrec.launch import launch
from entrec.pairwise.kernels.powers import kind, power, slope
from entrec.pairwise.tiled import Pairs, Weighing

LOG2E = tl.constexpr(1.4426950408889634)
_PROGRAMS = 512  # that keep a large card busy


@triton.jit
def _similarities(x, y, rows, columns, k, m, d, p, scale, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """-scale sum |x-y|^p of a block of pairs."""
    s = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(d):
        a = tl.load(x + rows, mask=rows < k, other=0.0)
        b = tl.load(y + columns, mask=columns < m, other=0.0)
        s += power(a[:, None] - b[None, :], p, KIND)
        x += k
        y += m
    return -scale * s


@triton.jit(do_not_specialize=["k", "m", "d", "offset"])
def _log_sums(
    x, y, out, k, m, d, p, scale, offset, EXCLUDE: tl.constexpr, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Rows of log sum_j exp, by a running maximum of the exponents."""
    problem = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x += problem * k * d
    y += problem * m * d
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(0, m, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        s = _similarities(x, y, rows, columns, k, m, d, p, scale, KIND, ROWS, COLUMNS)
        outside = columns[None, :] >= m
        if EXCLUDE:
            outside |= rows[:, None] + offset == columns[None, :]
        s = tl.where(outside, float("-inf"), s)
        higher = tl.maximum(top, tl.max(s, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.exp2((s - shift[:, None]) * LOG2E), 1)
        top = higher
    tl.store(out + problem * k + rows, top + tl.log(total), mask=rows < k)


@triton.jit(do_not_specialize=["k", "m", "d", "offset"])
def _gradient(
    x,
    y,
    row_sums,
    row_gradient,
    column_sums,
    column_gradient,
    out,
    k,
    m,
    d,
    p,
    scale,
    offset,
    BY_ROW: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    EXCLUDE: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sum_j W_ij ds_ij/dx_i, with W_ij = g_i exp(s_ij - l_i) [by row] + g_j exp(s_ij - l_j) [by column]."""
    problem = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x += problem * k * d
    y += problem * m * d
    out += problem * k * d
    if BY_ROW:
        row_sum = tl.load(row_sums + problem * k + rows, mask=rows < k, other=0.0)
        row_weight = tl.load(row_gradient + problem * k + rows, mask=rows < k, other=0.0)
    for start in range(0, m, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        s = _similarities(x, y, rows, columns, k, m, d, p, scale, KIND, ROWS, COLUMNS)
        w = tl.zeros([ROWS, COLUMNS], tl.float32)
        if BY_ROW:
            w += tl.exp2((s - row_sum[:, None]) * LOG2E) * row_weight[:, None]
        if BY_COLUMN:
            column_sum = tl.load(column_sums + problem * m + columns, mask=columns < m, other=0.0)
            column_weight = tl.load(column_gradient + problem * m + columns, mask=columns < m, other=0.0)
            w += tl.exp2((s - column_sum[None, :]) * LOG2E) * column_weight[None, :]
        if EXCLUDE:
            w = tl.where(rows[:, None] + offset == columns[None, :], 0.0, w)
        w = tl.where((rows[:, None] < k) & (columns[None, :] < m), -scale * p * w, 0.0)
        a, b, at = x + rows, y + columns, out + rows
        for _ in range(d):
            difference = tl.load(a, mask=rows < k, other=0.0)[:, None] - tl.load(b, mask=columns < m, other=0.0)[None, :]
            # Only this program touches these rows, so the order of the additions is always the same.
            tl.atomic_add(at, tl.sum(w * slope(difference, p, KIND), 1), mask=rows < k, sem="relaxed")
            a += k
            b += m
            at += k


def log_sums(x: Tensor, y: Tensor, p: float, pairs: Pairs) -> Tensor:
    """The l_i of (problems, d, k) and (problems, d, m) float32 points."""
    (problems, d, k), m = x.shape, y.shape[2]
    out = torch.empty((problems, k), dtype=torch.float32, device=x.device)
    rows, columns = _block(k, problems)
    launch(
        _log_sums, (triton.cdiv(k, rows), problems),
        x, y, out, k, m, d, p, pairs.scale, pairs.offset,
        EXCLUDE=pairs.exclude_diagonal, KIND=kind(p), ROWS=rows, COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return out


def pull(x: Tensor, y: Tensor, p: float, rows: Weighing | None, columns: Weighing | None, offset: int, pairs: Pairs) -> Tensor:
    """What the columns y add to the gradient of the rows x; both, and the result, (problems, d, k)."""
    (problems, d, k), m = x.shape, y.shape[2]
    out = torch.zeros_like(x)
    height, breadth = _block(k, problems)
    launch(
        _gradient, (triton.cdiv(k, height), problems),
        x, y, *(rows or (x, x)), *(columns or (x, x)), out, k, m, d, p, pairs.scale, offset,
        BY_ROW=rows is not None, BY_COLUMN=columns is not None, EXCLUDE=pairs.exclude_diagonal,
        KIND=kind(p), ROWS=height, COLUMNS=breadth, num_warps=4,
    )  # fmt: skip
    return out


def _block(k: int, problems: int) -> tuple[int, int]:
    """Rows and columns of a tile of 4096 pairs: fewer rows where there would be too few programs."""
    rows = 64
    while rows > 16 and triton.cdiv(k, rows) * problems < _PROGRAMS:
        rows //= 2
    return rows, 4096 // rows
