"""Log-sums of exp(kappa cos(z_i, z_j)) over one set of rows, straight from the projections to their gradient.

    l_i = log sum_j exp(kappa u_i.u_j),  u = z / |z|                  (with or without j = i)
    dL/du_i = kappa sum_j M_ij u_j,  M_ij = exp(kappa u_i.u_j) (g_i e^{-l_i} + g_j e^{-l_j}),  g = dL/dl
    dL/dz_i = (du_i - (du_i.u_i) u_i) / |z_i|

- The matrix units get half-precision rows x = sqrt(kappa log2 e) u, so that exp(kappa u_i.u_j) is exp2(x_i.x_j): no scale, no
  shift, no maximum.
- The diagonal is left out of every product. Forwards its exact e^kappa is added at the end; backwards it is a multiple of
  u_i, which the projection removes (kept in, it would be up to a thousand times the rest, and its rounding would show).
- Rows are padded with zero vectors to a multiple of 256. Above a few thousand rows each pair is visited once and added to both
  of its rows, as 64-bit integers: sums in fixed point come out the same in any order.
"""

import math
from types import ModuleType

import torch
import triton
import triton.language as tl
from torch import Tensor

from entrec.cards import has_large_blocks, is_hopper
from entrec.launch import launch

hopper: ModuleType | None
try:
    from entrec.pairwise.kernels import hopper
except (ImportError, AttributeError):  # Gluon is experimental, and this Triton has none or another; what follows does it all
    hopper = None

WIDEST = 256  # columns that a program holds
LARGEST_KAPPA = 40.0  # exp2 of the products, and of minus the log-sums, stay numbers up to here

_LOG2E = 1.4426950408889634
_PADDING = 256
_UP = tl.constexpr(16384.0)  # |M_ij| <= 2 max |g| becomes at most 2^15: the top of half precision
_SMALL_UP_TO = 512  # rows: one launch each way, though every program normalises all rows again
_WHOLE_ROWS_UP_TO = 8192  # a second launch costs more than the symmetry saves
_HOPPER_FROM = 8193  # a launch with tensor maps costs some 50 us more on the host
# Above this kappa the rows without their self term may be too small for sums in fixed point.
_FIXED_POINT_UP_TO = 12.0


@triton.jit
def _unit_rows(z, rows, cols, k, d):
    x = tl.load(z + rows[:, None].to(tl.int64) * d + cols[None, :], mask=(rows[:, None] < k) & (cols[None, :] < d), other=0.0)
    m = tl.max(tl.abs(x), 1)  # so that the squares neither overflow nor vanish
    m = tl.where(m > 1.2e-38, m, 1.0)  # below it, 1/m is no number
    x = x * (1.0 / m)[:, None]
    n2 = tl.sum(x * x, 1)
    r = tl.where(n2 > 1e-37, tl.rsqrt(n2), 0.0)
    return x * r[:, None], r / m


@triton.jit(do_not_specialize=["k"])
def _prepare(z, x, inv, sums, k, KP, d, scale, DP: tl.constexpr, BR: tl.constexpr):
    """Half-precision unit rows times scale, 1/|z| and zeroed sums."""
    v = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    cols = tl.arange(0, DP)
    u, r = _unit_rows(z + v * k * d, rows, cols, k, d)
    tl.store(x + (v * KP + rows[:, None]) * DP + cols[None, :], (u * scale).to(tl.float16))
    tl.store(inv + v * KP + rows, r)
    if sums is not None:
        tl.store(sums + v * KP + rows, tl.zeros([BR], tl.int64))


@triton.jit(do_not_specialize=["k"])
def _forward(
    x, sums, k, KP, fixed, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr
):
    """Adds every off-diagonal pair to both of its rows, as order-independent 64-bit fixed-point sums.

    Row block ib meets itself and the following half of the blocks, cyclically: each unordered pair of blocks once, and
    equal work for every program.
    """
    DT: tl.constexpr = BM // BN
    ib = tl.program_id(0) // SPLIT
    sp = tl.program_id(0) % SPLIT
    base = tl.program_id(1) * KP
    nb = KP // BM
    cd = tl.arange(0, DP)
    cb = tl.arange(0, BN)
    rows = ib * BM + tl.arange(0, BM)
    x += base.to(tl.int64) * DP
    xi = tl.load(x + rows[:, None] * DP + cd[None, :])
    acc = tl.zeros([BM], tl.float32)
    if sp == 0:
        for t in tl.static_range(DT):
            cj = ib * BM + t * BN + cb
            xj = tl.load(x + cj[:, None] * DP + cd[None, :])
            s = tl.dot(xi, xj.T)
            acc += tl.sum(tl.where((rows[:, None] != cj[None, :]) & (cj[None, :] < k), tl.exp2(s), 0.0), 1)
    half = (nb - 1) // 2 + ((nb % 2 == 0) & (ib < nb // 2)).to(tl.int32)
    n = half * DT
    total = nb * DT
    vi = (rows < k).to(tl.float32)
    for t in tl.range(n * sp // SPLIT, n * (sp + 1) // SPLIT, num_stages=STAGES):
        j = ib * DT + DT + t
        j = tl.where(j >= total, j - total, j)
        cj = j * BN + cb
        xj = tl.load(x + cj[:, None] * DP + cd[None, :])
        e = tl.exp2(tl.dot(xi, xj.T))
        # the factors 0 and 1 ride on the additions as fused multiply-adds: cheaper than masks
        acc += tl.sum(e * (cj < k).to(tl.float32)[None, :], 1)
        cs = tl.sum(e * vi[:, None], 0)
        tl.atomic_add(sums + base + cj, (cs * fixed).to(tl.int64), sem="relaxed")
    tl.atomic_add(sums + base + rows, (acc * fixed).to(tl.int64), sem="relaxed")


@triton.jit(do_not_specialize=["k"])
def _finish(sums, lse, w, k, KP, unfixed, diagonal, up, B: tl.constexpr):
    """Fixed point to logarithms, and with w the backward weights of a constant gradient."""
    v = tl.program_id(1)
    r = tl.program_id(0) * B + tl.arange(0, B)
    s = (tl.load(sums + v * KP + r, mask=r < k, other=0).to(tl.float64) * unfixed).to(tl.float32) + diagonal
    tl.store(lse + v * k + r, tl.log(s), mask=r < k)
    if w is not None:
        tl.store(w + v * KP + r, tl.where(r < k, up / s, 0.0), mask=r < KP)


@triton.jit(do_not_specialize=["k"])
def _forward_rows(x, lse, w, k, KP, diagonal, up, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr):
    """Forward without symmetry and without fixed point: one program sums whole rows and takes their log."""
    v = tl.program_id(1)
    cd = tl.arange(0, DP)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    x += (v * KP).to(tl.int64) * DP
    xi = tl.load(x + rows[:, None] * DP + cd[None, :])
    acc = tl.zeros([BM], tl.float32)
    for j in tl.range(0, KP, BN, num_stages=STAGES):
        cj = j + tl.arange(0, BN)
        xj = tl.load(x + cj[:, None] * DP + cd[None, :])
        e = tl.exp2(tl.dot(xi, xj.T))
        acc += tl.sum(tl.where((rows[:, None] != cj[None, :]) & (cj[None, :] < k), e, 0.0), 1)
    acc += diagonal
    tl.store(lse + v * k + rows, tl.log(acc), mask=rows < k)
    if w is not None:
        tl.store(w + v * KP + rows, tl.where(rows < k, up / acc, 0.0))


@triton.jit
def _largest(g, k, sg, CONST: tl.constexpr, B: tl.constexpr):
    if CONST:
        m = tl.abs(tl.load(g).to(tl.float32))
    else:
        mx = tl.zeros([B], tl.float32)
        for s in range(0, k, B):
            q = s + tl.arange(0, B)
            mx = tl.maximum(mx, tl.abs(tl.load(g + q * sg, mask=q < k, other=0.0).to(tl.float32)))
        m = tl.max(mx, 0)
    return m


@triton.jit(do_not_specialize=["k", "sgv", "sgk"])
def _weights(g, lse, w, unscale, k, KP, gscale, sgv, sgk, CONST: tl.constexpr, B: tl.constexpr):
    """w_i = g_i e^{-l_i}, scaled so that the largest |M_ij| lies near the top of half precision."""
    v = tl.program_id(1)
    r = tl.program_id(0) * B + tl.arange(0, B)
    g += v * sgv
    m = _largest(g, k, sgk, CONST, B)
    scale = tl.where(m > 0, _UP / m, 1.0)
    gi = tl.load(g + r * sgk, mask=r < k, other=0.0).to(tl.float32)
    log_sum = tl.load(lse + v * k + r, mask=r < k, other=0.0)
    tl.store(w + v * KP + r, gi * scale * tl.exp(-log_sum), mask=r < KP)
    if tl.program_id(0) == 0:
        tl.store(unscale + v, gscale / scale)


@triton.jit
def _store_gradient(dz, acc, xi, f, rows, cd, k, d):
    # Project along the rounded row, the one that entered the products.
    x = xi.to(tl.float32)
    q = tl.sum(x * x, 1)
    du = acc - x * (tl.sum(acc * x, 1) / tl.where(q > 0, q, 1.0))[:, None]
    tl.store(dz + rows[:, None].to(tl.int64) * d + cd[None, :], du * f[:, None], mask=(rows[:, None] < k) & (cd[None, :] < d))


@triton.jit
def _less_mean(value, lse, constant, k, B: tl.constexpr):
    """The constant less the mean of k log-sums, in a fixed order."""
    total = tl.zeros([B], tl.float32)
    for start in range(0, k, B):
        r = start + tl.arange(0, B)
        total += tl.load(lse + r, mask=r < k, other=0.0)
    tl.store(value, constant - tl.sum(total, 0) / k)


@triton.jit(do_not_specialize=["k"])
def _less_means(value, lse, constant, k, B: tl.constexpr):
    v = tl.program_id(0)
    _less_mean(value + v, lse + v * k, constant, k, B)


@triton.jit(do_not_specialize=["k"])
def _backward(
    x,
    w,
    unscale,
    inv,
    dz,
    lse,
    value,
    constant,
    k,
    KP,
    d,
    factor,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    STAGES: tl.constexpr,
):
    DT: tl.constexpr = BM // BN
    ib = tl.program_id(0)
    v = tl.program_id(1)
    if value is not None:  # noqa: SIM102 - decided when the kernel is compiled
        if ib == 0:
            _less_mean(value + v, lse + v * k, constant, k, 1024)
    cb = tl.arange(0, BN)
    cd = tl.arange(0, DP)
    rows = ib * BM + tl.arange(0, BM)
    x += (v * KP).to(tl.int64) * DP
    w += v * KP
    xi = tl.load(x + rows[:, None] * DP + cd[None, :])
    wi = tl.load(w + rows)
    acc = tl.zeros([BM, DP], tl.float32)
    for t in tl.static_range(DT):
        cj = ib * BM + t * BN + cb
        xj = tl.load(x + cj[:, None] * DP + cd[None, :])
        m = tl.exp2(tl.dot(xi, xj.T)) * (wi[:, None] + tl.load(w + cj)[None, :])
        m = tl.where((rows[:, None] == cj[None, :]) | (cj[None, :] >= k), 0.0, m)
        acc = tl.dot(m.to(tl.float16), xj, acc)
    total = KP // BN
    for t in tl.range(DT, total, num_stages=STAGES):
        j = ib * DT + t
        j = tl.where(j >= total, j - total, j)
        cj = j * BN + cb
        xj = tl.load(x + cj[:, None] * DP + cd[None, :])
        # A padded column adds nothing, but M must stay finite: without the self term w_i alone can be huge.
        vj = (cj < k).to(tl.float32)
        m = tl.exp2(tl.dot(xi, xj.T)) * (wi[:, None] * vj[None, :] + tl.load(w + cj)[None, :])
        acc = tl.dot(m.to(tl.float16), xj, acc)
    f = factor * tl.load(inv + v * KP + rows)
    if unscale is not None:
        f *= tl.load(unscale + v)
    _store_gradient(dz + v.to(tl.int64) * k * d, acc, xi, f, rows, cd, k, d)


@triton.jit(do_not_specialize=["k"])
def _small_forward(z, lse, k, d, scale, diagonal, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The whole forward in one launch: every program normalises the rows it meets."""
    v = tl.program_id(1)
    z += v * k * d
    cd = tl.arange(0, DP)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    ui, _length = _unit_rows(z, rows, cd, k, d)
    xi = (ui * scale).to(tl.float16)
    acc = tl.zeros([BM], tl.float32)
    for j in range(0, k, BN):
        cj = j + tl.arange(0, BN)
        uj, _ = _unit_rows(z, cj, cd, k, d)
        e = tl.exp2(tl.dot(xi, (uj * scale).to(tl.float16).T))
        acc += tl.sum(tl.where((rows[:, None] != cj[None, :]) & (cj[None, :] < k), e, 0.0), 1)
    tl.store(lse + v * k + rows, tl.log(acc + diagonal), mask=rows < k)


@triton.jit
def _small_weights(g, lse, r, k, sgk, up):
    w = tl.exp(-tl.load(lse + r, mask=r < k, other=float("inf"))) * up
    if g is not None:
        w *= tl.load(g + r * sgk, mask=r < k, other=0.0).to(tl.float32)
    return w


@triton.jit(do_not_specialize=["k", "sgv", "sgk"])
def _small_backward(
    z,
    lse,
    g,
    dz,
    value,
    constant,
    k,
    d,
    scale,
    gscale,
    factor,
    sgv,
    sgk,
    CONST: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    v = tl.program_id(1)
    z += v * k * d
    lse += v * k
    if value is not None:  # noqa: SIM102 - as above
        if tl.program_id(0) == 0:
            _less_mean(value + v, lse, constant, k, 512)
    cd = tl.arange(0, DP)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    up = _UP
    if g is not None:
        g += v * sgv
        big = _largest(g, k, sgk, CONST, 1024)
        up = tl.where(big > 0, _UP / big, 1.0)
    ui, inv = _unit_rows(z, rows, cd, k, d)
    xi = (ui * scale).to(tl.float16)
    wi = _small_weights(g, lse, rows, k, sgk, up)
    acc = tl.zeros([BM, DP], tl.float32)
    for j in range(0, k, BN):
        cj = j + tl.arange(0, BN)
        uj, _ = _unit_rows(z, cj, cd, k, d)
        xj = (uj * scale).to(tl.float16)
        wj = _small_weights(g, lse, cj, k, sgk, up)
        m = tl.exp2(tl.dot(xi, xj.T)) * (wi[:, None] + wj[None, :])
        m = tl.where((rows[:, None] == cj[None, :]) | (cj[None, :] >= k), 0.0, m)
        acc = tl.dot(m.to(tl.float16), xj, acc)
    _store_gradient(dz + v * k * d, acc, xi, inv * (gscale / up * factor), rows, cd, k, d)


# Rows and columns of a block, warps and stages, by padded width; each the fastest of those tried on an H200.
_SYMMETRIC = {16: (128, 128, 4, 2), 32: (128, 128, 4, 2), 64: (128, 128, 4, 2), 128: (128, 128, 4, 2), 256: (128, 64, 4, 2)}
_WHOLE_ROWS = {16: (64, 128, 4, 3), 32: (64, 128, 4, 3), 64: (64, 128, 4, 3), 128: (64, 128, 4, 3), 256: (64, 64, 4, 3)}
_BACKWARD = {16: (128, 128, 8, 3), 32: (128, 128, 8, 3), 64: (128, 128, 8, 3), 128: (128, 128, 8, 3), 256: (128, 64, 8, 2)}
_BACKWARD_FEW = {16: (64, 64, 4, 3), 32: (64, 64, 4, 3), 64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (64, 32, 4, 3)}
_SMALL = {16: (32, 64, 4), 32: (32, 64, 4), 64: (32, 64, 4), 128: (32, 64, 4), 256: (16, 32, 4)}


def log_sums(z: Tensor, kappa: float, exclude_diagonal: bool) -> Tensor:
    """The l_i of (problems, k, d) contiguous float32 rows."""
    problems, k, d = z.shape
    if k > _SMALL_UP_TO:
        return _large_log_sums(z, kappa, exclude_diagonal, None)[0]
    sums = z.new_empty((problems, k))
    width = _width(d)
    rows, columns, warps = _SMALL[width]
    launch(
        _small_forward, (triton.cdiv(k, rows), problems),
        z, sums, k, d, _row_scale(kappa), 0.0 if exclude_diagonal else math.exp(kappa),
        DP=width, BM=rows, BN=columns, num_warps=warps,
    )  # fmt: skip
    return sums


def gradient(z: Tensor, sums: Tensor, g: Tensor, kappa: float) -> Tensor:
    """dL/dz for g = dL/dl (problems, k), of any strides."""
    problems, k, _ = z.shape
    if k <= _SMALL_UP_TO:
        return _small_gradient(z, sums, g, kappa, 1.0)
    x, inverse, _ = _prepared(z, kappa, in_fixed_point=False)
    padded = inverse.shape[1]
    weights = z.new_empty((problems, padded))
    unscale = z.new_empty((problems,))
    launch(
        _weights, (triton.cdiv(padded, 512), problems),
        g, sums, weights, unscale, k, padded, 1.0, *g.stride(),
        CONST=g.stride() == (0, 0), B=512, num_warps=4,
    )  # fmt: skip
    return _large_gradient(z, x, inverse, weights, unscale, math.sqrt(kappa / _LOG2E))


def less_mean_and_gradient(constant: float, z: Tensor, kappa: float, exclude_diagonal: bool) -> tuple[Tensor, Tensor]:
    """Each problem's constant less the mean of its l_i, and the gradient: known but for a factor, it need not wait.

    Where it costs no launch of its own, the mean is taken by the kernels of the gradient.
    """
    problems, k, _ = z.shape
    if k <= _SMALL_UP_TO:
        value = z.new_empty((problems,))
        return value, _small_gradient(z, log_sums(z, kappa, exclude_diagonal), None, kappa, -1 / k, (constant, value))
    weights = z.new_empty((problems, triton.cdiv(k, _PADDING) * _PADDING))
    sums, x, inverse = _large_log_sums(z, kappa, exclude_diagonal, weights)
    factor = -math.sqrt(kappa / _LOG2E) / (_UP.value * k)
    value = z.new_empty((problems,))
    if _by_hopper(z, k):
        launch(_less_means, (problems,), value, sums, constant, k, B=4096, num_warps=8)
        return value, _large_gradient(z, x, inverse, weights, None, factor)
    return value, _large_gradient(z, x, inverse, weights, None, factor, (sums, value, constant))


def _small_gradient(
    z: Tensor, sums: Tensor, g: Tensor | None, kappa: float, g_scale: float, mean: tuple[float, Tensor] | None = None
) -> Tensor:
    problems, k, d = z.shape
    out = torch.empty_like(z)
    width = _width(d)
    rows, columns, warps = _SMALL[width]
    strides = (0, 0) if g is None else g.stride()
    constant, value = mean or (0.0, None)
    launch(
        _small_backward, (triton.cdiv(k, rows), problems),
        z, sums, g, out, value, constant, k, d, _row_scale(kappa), g_scale, math.sqrt(kappa / _LOG2E), *strides,
        CONST=strides == (0, 0), DP=width, BM=rows, BN=columns, num_warps=warps,
    )  # fmt: skip
    return out


def _large_log_sums(z: Tensor, kappa: float, exclude_diagonal: bool, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The log-sums, the prepared rows and 1/|z|; fills in the weights of a constant gradient if they are given."""
    problems, k, _ = z.shape
    whole_rows = k <= _WHOLE_ROWS_UP_TO or (exclude_diagonal and kappa > _FIXED_POINT_UP_TO)
    x, inverse, fixed_sums = _prepared(z, kappa, not whole_rows)
    width, padded = x.shape[1], inverse.shape[1]
    sums = z.new_empty((problems, k))
    diagonal = 0.0 if exclude_diagonal else math.exp(kappa)
    if fixed_sums is None:
        rows, columns, warps, stages = _WHOLE_ROWS[width]
        launch(
            _forward_rows, (padded // rows, problems),
            x, sums, weights, k, padded, diagonal, _UP.value,
            DP=width, BM=rows, BN=columns, STAGES=stages, num_warps=warps,
        )  # fmt: skip
        return sums, x, inverse
    fixed = 2.0 ** (62 - math.ceil(math.log2(k))) * math.exp(-kappa)
    if hopper is not None and _by_hopper(z, k):
        hopper.forward(x, fixed_sums, k, padded, problems, fixed)
    else:
        rows, columns, warps, stages = _SYMMETRIC[width]
        split = max(1, min(8, 256 * rows // (padded * problems)))
        launch(
            _forward, (padded // rows * split, problems),
            x, fixed_sums, k, padded, fixed,
            DP=width, BM=rows, BN=columns, SPLIT=split, STAGES=stages, num_warps=warps,
        )  # fmt: skip
    launch(
        _finish, (triton.cdiv(padded, 512), problems),
        fixed_sums, sums, weights, k, padded, 1 / fixed, diagonal, _UP.value,
        B=512, num_warps=4,
    )  # fmt: skip
    return sums, x, inverse


def _large_gradient(
    z: Tensor,
    x: Tensor,
    inverse: Tensor,
    weights: Tensor,
    unscale: Tensor | None,
    factor: float,
    mean: tuple[Tensor, Tensor, float] | None = None,
) -> Tensor:
    problems, k, d = z.shape
    out = torch.empty_like(z)
    width, padded = x.shape[1], inverse.shape[1]
    if hopper is not None and _by_hopper(z, k):
        hopper.backward(x, weights, unscale, inverse, out, k, padded, problems, d, factor)
        return out
    many = padded * problems >= 128 * 132 and (width < 256 or has_large_blocks(z))
    rows, columns, warps, stages = (_BACKWARD if many else _BACKWARD_FEW)[width]
    launch(
        _backward, (padded // rows, problems),
        x, weights, unscale, inverse, out, *(mean or (None, None, 0.0)), k, padded, d, factor,
        DP=width, BM=rows, BN=columns, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return out


def _prepared(z: Tensor, kappa: float, in_fixed_point: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Half-precision rows, 1/|z|, and sums set to zero."""
    problems, k, d = z.shape
    width, padded = _width(d), triton.cdiv(k, _PADDING) * _PADDING
    x = torch.empty((problems * padded, width), dtype=torch.float16, device=z.device)
    inverse = z.new_empty((problems, padded))
    sums = torch.empty((problems, padded), dtype=torch.int64, device=z.device) if in_fixed_point else None
    rows = min(64, 4096 // width)
    launch(
        _prepare, (padded // rows, problems),
        z, x, inverse, sums, k, padded, d, _row_scale(kappa),
        DP=width, BR=rows, num_warps=4,
    )  # fmt: skip
    return x, inverse, sums


def _width(d: int) -> int:
    return max(16, 1 << (d - 1).bit_length())


def _row_scale(kappa: float) -> float:
    return math.sqrt(kappa * _LOG2E)


def _by_hopper(z: Tensor, k: int) -> bool:
    return k >= _HOPPER_FROM and hopper is not None and is_hopper(z)
