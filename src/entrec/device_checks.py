"""The commonest value checks in one launch: for small batches a dozen tiny operations would cost more than the loss."""

import triton
import triton.language as tl
from torch import Tensor

from entrec.cards import launching_on
from entrec.launch import launch

NOT_FINITE = tl.constexpr(1)
ZERO_VECTOR = tl.constexpr(2)
_ENTRIES = 4096  # that a program looks at


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _look(x, flag, rows, d, DIRECTIONS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    largest = tl.zeros([ROWS], tl.float32)
    wrong = tl.zeros([ROWS], tl.int32)
    for start in range(0, d, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = (row[:, None] < rows) & (column[None, :] < d)
        size = tl.abs(tl.load(x + row[:, None] * d + column[None, :], mask=inside, other=0.0))
        finite = size < float("inf")  # which neither infinity nor NaN is
        wrong |= tl.max(tl.where(finite, 0, 1), 1)
        largest = tl.maximum(largest, tl.max(tl.where(finite & (size == 0), 0.0, 1.0), 1))
    found = tl.max(wrong, 0) * NOT_FINITE
    if DIRECTIONS:
        found |= tl.max(tl.where((row < rows) & (largest == 0), 1, 0), 0) * ZERO_VECTOR
    if found != 0:
        tl.atomic_or(flag, found)


def look(x: Tensor, flag: Tensor, directions: bool) -> None:
    """Set bits of the flag where x (..., d) on a CUDA device holds a NaN, an infinity or, for directions, a row of zeros."""
    x = x.contiguous()
    d = x.shape[-1]
    rows = x.numel() // d
    width = min(1024, triton.next_power_of_2(d))
    at_once = max(1, _ENTRIES // width)
    with launching_on(x):
        launch(
            _look, (triton.cdiv(rows, at_once),),
            x, flag, rows, d,
            DIRECTIONS=directions, ROWS=at_once, WIDTH=width, num_warps=4,
        )  # fmt: skip
