"""Forward and backward for Hopper in Gluon: TMA loads by one warp, wgmma and exponentials by consumer warpgroups.

What they compute, and on what, stands in `sphere`, which does without this module where Gluon, still experimental,
cannot be imported. What made them fast:

- ptxas moves the wait for a matrix product ahead of the exponentials that should hide it, unless something ends the basic
  block in between: the wait for the next tile does. The conversion of M to half precision must follow the wait for the
  product that reads the old M, or all products are serialised.
- Sums over columns cross lanes. Exchanging one lane bit with one register bit at a time takes 28 shuffles, a butterfly 96.
"""

import functools
from typing import Any

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from entrec.launch import launch

tma_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared


@gluon.jit
def _fwd_producer(
    ui_desc,
    uj_desc,
    ui_smem,
    uj_smem,
    bar_i,
    ready,
    empty,
    base,
    ib,
    j,
    lo,
    hi,
    total,
    BM: gl.constexpr,
    BN: gl.constexpr,
    DP: gl.constexpr,
    STAGES: gl.constexpr,
    RB: gl.constexpr,
):
    mbarrier.expect(bar_i, BM * DP * 2)
    for c in gl.static_range(BM // RB):
        tma_load(ui_desc, [base + ib * BM + c * RB, 0], bar_i, ui_smem.index(c))
    for t in range(hi - lo):
        b = t % STAGES
        mbarrier.wait(empty.index(b), ((t // STAGES) & 1) ^ 1)
        mbarrier.expect(ready.index(b), BN * DP * 2)
        tma_load(uj_desc, [base + j * BN, 0], ready.index(b), uj_smem.index(b))
        j += 1
        j = gl.where(j >= total, 0, j)


@gluon.jit
def _thread_column_sums(e, MR: gl.constexpr, BN: gl.constexpr):
    # rows of a 64-row wgmma tile: 16 warp + 8 register + lane // 4
    x = gl.sum(e.reshape([MR // 64, 4, 2, 2, 2, 2, BN]), 0)
    return gl.sum(x, 1)


@gluon.jit
def _warp_column_sums(x):
    """(warp, 8 lane rows as 2x2x2, column) to (warp, column).

    Three times, one lane bit of the rows changes place with one register bit of the columns, and half of the registers
    are added up: 28 shuffles a thread, where a butterfly over all registers takes 96.
    """
    L1: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 0, 1], [0, 0, 0, 0, 8], [0, 0, 0, 0, 16], [0, 0, 0, 0, 32], [0, 0, 0, 1, 0]],
        lane_bases=[[0, 0, 0, 0, 2], [0, 0, 0, 0, 4], [0, 0, 0, 0, 64], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]],
        warp_bases=[[1, 0, 0, 0, 0], [2, 0, 0, 0, 0]],
        block_bases=[],
        shape=[4, 2, 2, 2, 128],
    )
    x = gl.sum(gl.convert_layout(x, L1), 3)
    L2: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [0, 0, 0, 8], [0, 0, 0, 16], [0, 0, 1, 0]],
        lane_bases=[[0, 0, 0, 2], [0, 0, 0, 4], [0, 0, 0, 64], [0, 0, 0, 32], [0, 1, 0, 0]],
        warp_bases=[[1, 0, 0, 0], [2, 0, 0, 0]],
        block_bases=[],
        shape=[4, 2, 2, 128],
    )
    x = gl.sum(gl.convert_layout(x, L2), 2)
    L3: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 1], [0, 0, 8], [0, 1, 0]],
        lane_bases=[[0, 0, 2], [0, 0, 4], [0, 0, 64], [0, 0, 32], [0, 0, 16]],
        warp_bases=[[1, 0, 0], [2, 0, 0]],
        block_bases=[],
        shape=[4, 2, 128],
    )
    return gl.sum(gl.convert_layout(x, L3), 1)


@gluon.jit
def _add_columns(sums, x, fixed, add):
    # Every warp for itself: four times the atomics of a sum over the four warps, but no barrier among them.
    LW: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 8]],
        lane_bases=[[0, 2], [0, 4], [0, 64], [0, 32], [0, 16]],
        warp_bases=[[1, 0], [2, 0]],
        block_bases=[],
        shape=[4, 128],
    )
    x = gl.convert_layout(_warp_column_sums(x), LW)
    cc = gl.arange(0, 128, gl.SliceLayout(0, LW))
    rr = gl.arange(0, 4, gl.SliceLayout(1, LW))
    o = cc[None, :] + 0 * rr[:, None]
    gl.atomic_add(sums + o, (x * fixed).to(gl.int64), mask=(o < 128) & add, sem="relaxed")


@gluon.jit
def _masked(s, rows, cj, k, special):
    # before the exponential, so that no branch stands between exponentials and additions
    if special:
        s = gl.where((rows[:, None] != cj[None, :]) & (rows[:, None] < k) & (cj[None, :] < k), s, float("-inf"))
    return s


@gluon.jit
def _fwd_consumer(
    ui_smem,
    uj_smem,
    bar_i,
    ready,
    empty,
    turn,
    base,
    ib,
    j,
    lo,
    hi,
    total,
    sums,
    k,
    KP,
    fixed,
    C: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    DP: gl.constexpr,
    STAGES: gl.constexpr,
    HALVES: gl.constexpr,
):
    MR: gl.constexpr = BM // 2
    DT: gl.constexpr = BM // BN
    LS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    cb = gl.arange(0, BN, gl.SliceLayout(0, LS))
    mbarrier.wait(bar_i, 0)
    pad_rows = ib * BM + BM > k
    n = hi - lo
    if HALVES:
        # Two halves of 64 rows: the product of one is under way while the exponentials of the other are taken.
        r0 = ib * BM + C * MR + gl.arange(0, 64, gl.SliceLayout(1, LS))
        r1 = r0 + 64
        u0 = ui_smem.index(2 * C)
        u1 = ui_smem.index(2 * C + 1)
        zero = gl.zeros([64, BN], gl.float32, LS)
        a0 = gl.zeros([64], gl.float32, gl.SliceLayout(1, LS))
        a1 = gl.zeros([64], gl.float32, gl.SliceLayout(1, LS))
        mbarrier.wait(ready.index(0), 0)
        s0 = warpgroup_mma(u0, uj_smem.index(0).permute((1, 0)), zero, use_acc=False, is_async=True)
        s0 = warpgroup_mma_wait(0, deps=(s0,))
        for t in range(n):
            b = t % STAGES
            s1 = warpgroup_mma(u1, uj_smem.index(b).permute((1, 0)), zero, use_acc=False, is_async=True)
            cj = j * BN + cb
            special = (t + lo < DT) | pad_rows | (j * BN + BN > k)
            e = gl.exp2(_masked(s0, r0, cj, k, special))
            a0 += gl.sum(e, 1)
            x = _thread_column_sums(e, 64, BN)
            bn = (t + 1) % STAGES
            # The wait for the next tile stands here because it ends a basic block: ptxas would otherwise move the wait
            # for s1 ahead of the exponentials of s0, and nothing would overlap.
            mbarrier.wait(ready.index(bn), ((t + 1) // STAGES) & 1, pred=t + 1 < n)
            s1, x, a0 = warpgroup_mma_wait(0, deps=(s1, x, a0))
            mbarrier.arrive(empty.index(b), count=1)
            s0 = warpgroup_mma(u0, uj_smem.index(bn).permute((1, 0)), zero, use_acc=False, is_async=True)
            e = gl.exp2(_masked(s1, r1, cj, k, special))
            a1 += gl.sum(e, 1)
            x += _thread_column_sums(e, 64, BN)
            # a tile of the diagonal block meets its mirror image itself
            _add_columns(sums + base + j * BN, x, fixed, t + lo >= DT)
            j += 1
            j = gl.where(j >= total, 0, j)
            s0 = warpgroup_mma_wait(0, deps=(s0,))
        gl.atomic_add(sums + base + r0, (a0 * fixed).to(gl.int64), sem="relaxed")
        gl.atomic_add(sums + base + r1, (a1 * fixed).to(gl.int64), sem="relaxed")
    else:
        rows = ib * BM + C * MR + gl.arange(0, MR, gl.SliceLayout(1, LS))
        ui = ui_smem.index(C)
        zero = gl.zeros([MR, BN], gl.float32, LS)
        acc = gl.zeros([MR], gl.float32, gl.SliceLayout(1, LS))
        for t in range(n):
            b = t % STAGES
            mbarrier.wait(ready.index(b), (t // STAGES) & 1)
            # one warpgroup multiplies while the other takes exponentials
            mbarrier.wait(turn.index(C), t & 1)
            s = warpgroup_mma(ui, uj_smem.index(b).permute((1, 0)), zero, use_acc=False, is_async=True)
            s = warpgroup_mma_wait(0, deps=(s,))
            mbarrier.arrive(turn.index(1 - C), count=1)
            mbarrier.arrive(empty.index(b), count=1)
            cj = j * BN + cb
            e = gl.exp2(_masked(s, rows, cj, k, (t + lo < DT) | pad_rows | (j * BN + BN > k)))
            acc += gl.sum(e, 1)
            _add_columns(sums + base + j * BN, _thread_column_sums(e, MR, BN), fixed, t + lo >= DT)
            j += 1
            j = gl.where(j >= total, 0, j)
        gl.atomic_add(sums + base + rows, (acc * fixed).to(gl.int64), sem="relaxed")


@gluon.jit(do_not_specialize=["k"])
def _gluon_forward(
    ui_desc,
    uj_desc,
    sums,
    k,
    KP,
    fixed,
    BM: gl.constexpr,
    BN: gl.constexpr,
    DP: gl.constexpr,
    STAGES: gl.constexpr,
    SPLIT: gl.constexpr,
    HALVES: gl.constexpr,
    num_warps: gl.constexpr,
):
    DT: gl.constexpr = BM // BN
    RB: gl.constexpr = 64 if HALVES else BM // 2
    ib = gl.program_id(0) // SPLIT
    sp = gl.program_id(0) % SPLIT
    base = gl.program_id(1) * KP
    nb = KP // BM
    total = nb * DT
    # each unordered pair of row blocks once: block ib meets the following half of the blocks, cyclically
    half = (nb - 1) // 2 + ((nb % 2 == 0) & (ib < nb // 2)).to(gl.int32)
    n = (half + 1) * DT
    lo = n * sp // SPLIT
    hi = n * (sp + 1) // SPLIT
    j = ib * DT + lo
    j = gl.where(j >= total, j - total, j)
    ui_smem = gl.allocate_shared_memory(gl.float16, [BM // RB, RB, DP], ui_desc.layout)
    uj_smem = gl.allocate_shared_memory(gl.float16, [STAGES, BN, DP], uj_desc.layout)
    bar_i = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(turn.index(i), count=1)
    mbarrier.init(bar_i, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    fence_async_shared()
    if not HALVES:
        mbarrier.arrive(turn.index(0), count=1)
    if hi > lo:
        gl.warp_specialize(
            [
                (
                    _fwd_consumer,
                    (
                        ui_smem,
                        uj_smem,
                        bar_i,
                        ready,
                        empty,
                        turn,
                        base,
                        ib,
                        j,
                        lo,
                        hi,
                        total,
                        sums,
                        k,
                        KP,
                        fixed,
                        0,
                        BM,
                        BN,
                        DP,
                        STAGES,
                        HALVES,
                    ),
                ),
                (
                    _fwd_consumer,
                    (
                        ui_smem,
                        uj_smem,
                        bar_i,
                        ready,
                        empty,
                        turn,
                        base,
                        ib,
                        j,
                        lo,
                        hi,
                        total,
                        sums,
                        k,
                        KP,
                        fixed,
                        1,
                        BM,
                        BN,
                        DP,
                        STAGES,
                        HALVES,
                    ),
                ),
                (
                    _fwd_producer,
                    (
                        ui_desc,
                        uj_desc,
                        ui_smem,
                        uj_smem,
                        bar_i,
                        ready,
                        empty,
                        base,
                        ib,
                        j,
                        lo,
                        hi,
                        total,
                        BM,
                        BN,
                        DP,
                        STAGES,
                        RB,
                    ),
                ),
            ],
            [4, 1],
            [240, 24],
        )


@gluon.jit
def _bwd_producer(
    ui_desc,
    uj_desc,
    ui_smem,
    uj_smem,
    bar_i,
    ready,
    empty,
    base,
    ib,
    total,
    BM: gl.constexpr,
    BN: gl.constexpr,
    DP: gl.constexpr,
    STAGES: gl.constexpr,
    NC: gl.constexpr,
):
    mbarrier.expect(bar_i, BM * DP * 2)
    for c in gl.static_range(NC):
        tma_load(ui_desc, [base + ib * BM + c * (BM // NC), 0], bar_i, ui_smem.index(c))
    j = ib * (BM // BN)
    for t in range(total):
        b = t % STAGES
        mbarrier.wait(empty.index(b), ((t // STAGES) & 1) ^ 1)
        mbarrier.expect(ready.index(b), BN * DP * 2)
        tma_load(uj_desc, [base + j * BN, 0], ready.index(b), uj_smem.index(b))
        j += 1
        j = gl.where(j >= total, 0, j)


@gluon.jit
def _bwd_consumer(
    ui_smem,
    uj_smem,
    bar_i,
    ready,
    empty,
    base,
    ib,
    total,
    w,
    unscale,
    inv,
    dz,
    k,
    d,
    factor,
    v,
    C: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    DP: gl.constexpr,
    STAGES: gl.constexpr,
    NC: gl.constexpr,
):
    MR: gl.constexpr = BM // NC
    DT: gl.constexpr = BM // BN
    LS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    LO: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, DP, 16])
    LP: gl.constexpr = gl.DotOperandLayout(0, LO, 2)
    rows = ib * BM + C * MR + gl.arange(0, MR, gl.SliceLayout(1, LS))
    cb = gl.arange(0, BN, gl.SliceLayout(0, LS))
    wi = gl.load(w + base + rows)
    mbarrier.wait(bar_i, 0)
    ui = ui_smem.index(C)
    zero = gl.zeros([MR, BN], gl.float32, LS)
    acc = gl.zeros([MR, DP], gl.float32, LO)
    j = ib * DT
    # diagonal tile
    wj = gl.load(w + base + j * BN + cb)
    mbarrier.wait(ready.index(0), 0)
    s = warpgroup_mma(ui, uj_smem.index(0).permute((1, 0)), zero, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=(s,))
    s = gl.where((rows[:, None] == (j * BN + cb)[None, :]) | (j * BN + cb >= k)[None, :], float("-inf"), s)
    m = gl.exp2(s) * (wi[:, None] + wj[None, :])
    p = gl.convert_layout(m.to(gl.float16), LP)
    prev = 0
    mbarrier.wait(ready.index(1), 0)
    for t in range(1, total):
        j += 1
        j = gl.where(j >= total, 0, j)
        wj = gl.load(w + base + j * BN + cb)
        b = t % STAGES
        s = warpgroup_mma(ui, uj_smem.index(b).permute((1, 0)), zero, use_acc=False, is_async=True)
        acc = warpgroup_mma(p, uj_smem.index(prev), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=(s,))
        if j * BN + BN > k:
            # A padded row adds nothing, but M must stay finite: without the self term w_i alone can be huge.
            s = gl.where((j * BN + cb < k)[None, :], s, float("-inf"))
        m = gl.exp2(s) * (wi[:, None] + wj[None, :])
        if DT > 1:  # noqa: SIM102 - known when the kernel is compiled, and the next only when it runs
            if t < DT:
                m = gl.where(rows[:, None] == (j * BN + cb)[None, :], 0.0, m)
        # This wait stands here because it ends a basic block: ptxas would otherwise move the wait for the second product
        # ahead of most of the exponentials. It needs at least three stages.
        mbarrier.wait(ready.index((t + 1) % STAGES), ((t + 1) // STAGES) & 1, pred=t + 1 < total)
        acc, p, m = warpgroup_mma_wait(0, deps=(acc, p, m))
        mbarrier.arrive(empty.index(prev), count=1)
        p = gl.convert_layout(m.to(gl.float16), LP)
        prev = b
    acc = warpgroup_mma(p, uj_smem.index(prev), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    x = ui.load(LO).to(gl.float32)
    q = gl.sum(x * x, 1)
    q = gl.where(q > 0, q, 1.0)
    du = acc - x * (gl.sum(acc * x, 1) / q)[:, None]
    orow = ib * BM + C * MR + gl.arange(0, MR, gl.SliceLayout(1, LO))
    cd = gl.arange(0, DP, gl.SliceLayout(0, LO))
    f = gl.load(inv + base + orow) * factor
    if unscale is not None:
        f *= gl.load(unscale + v)
    gl.store(
        dz + (v * k + orow[:, None]).to(gl.int64) * d + cd[None, :],
        du * f[:, None],
        mask=(orow[:, None] < k) & (cd[None, :] < d),
    )


@gluon.jit(do_not_specialize=["k"])
def _gluon_backward(
    ui_desc,
    uj_desc,
    w,
    unscale,
    inv,
    dz,
    k,
    KP,
    d,
    factor,
    BM: gl.constexpr,
    BN: gl.constexpr,
    DP: gl.constexpr,
    STAGES: gl.constexpr,
    num_warps: gl.constexpr,
):
    NC: gl.constexpr = 2
    ib = gl.program_id(0)
    v = gl.program_id(1)
    base = v * KP
    total = KP // BN
    ui_smem = gl.allocate_shared_memory(gl.float16, [NC, BM // NC, DP], ui_desc.layout)
    uj_smem = gl.allocate_shared_memory(gl.float16, [STAGES, BN, DP], uj_desc.layout)
    bar_i = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(bar_i, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=NC)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                _bwd_consumer,
                (
                    ui_smem,
                    uj_smem,
                    bar_i,
                    ready,
                    empty,
                    base,
                    ib,
                    total,
                    w,
                    unscale,
                    inv,
                    dz,
                    k,
                    d,
                    factor,
                    v,
                    0,
                    BM,
                    BN,
                    DP,
                    STAGES,
                    NC,
                ),
            ),
            (
                _bwd_consumer,
                (
                    ui_smem,
                    uj_smem,
                    bar_i,
                    ready,
                    empty,
                    base,
                    ib,
                    total,
                    w,
                    unscale,
                    inv,
                    dz,
                    k,
                    d,
                    factor,
                    v,
                    1,
                    BM,
                    BN,
                    DP,
                    STAGES,
                    NC,
                ),
            ),
            (_bwd_producer, (ui_desc, uj_desc, ui_smem, uj_smem, bar_i, ready, empty, base, ib, total, BM, BN, DP, STAGES, NC)),
        ],
        [4, 1],
        [240, 24],
    )


@functools.cache
def _layout(rows: int, columns: int) -> Any:
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.float16)


def _descriptor(x: Tensor, rows: int) -> Any:
    return TensorDescriptor(x, list(x.shape), [x.shape[1], 1], [rows, x.shape[1]], _layout(rows, x.shape[1]))


def forward(x: Tensor, sums: Tensor, k: int, padded: int, problems: int, fixed: float) -> None:
    """Add every pair of rows to the sums of both, in fixed point."""
    width = x.shape[1]
    # Rows of a program, whether its warpgroups take halves of 64 of them in turn, and stages: what fits into shared memory.
    rows, halves, stages = (128, False, 2) if width == 256 else (256, True, 3)
    split = max(1, min(8, 132 * 256 // (padded * problems)))
    launch(
        _gluon_forward, (padded // rows * split, problems),
        _descriptor(x, 64), _descriptor(x, 128), sums, k, padded, fixed,
        BM=rows, BN=128, DP=width, STAGES=stages, SPLIT=split, HALVES=halves, num_warps=4,
    )  # fmt: skip


def backward(
    x: Tensor,
    weights: Tensor,
    unscale: Tensor | None,
    inverse: Tensor,
    out: Tensor,
    k: int,
    padded: int,
    problems: int,
    d: int,
    factor: float,
) -> None:
    """The gradient of the rows before they were normalised."""
    width = x.shape[1]
    columns = 64 if width == 256 else 128
    launch(
        _gluon_backward, (padded // 128, problems),
        _descriptor(x, 64), _descriptor(x, columns), weights, unscale, inverse, out, k, padded, d, factor,
        BM=128, BN=columns, DP=width, STAGES=4, num_warps=4,
    )  # fmt: skip
