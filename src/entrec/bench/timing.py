"""Time and matrix-product rate of a device, as a user waits for them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from entrec.pairwise import Precision

_SECONDS = 0.5  # short steps are repeated for that long, so that their median means something
_SIDE = {"cpu": 2048, "cuda": 8192}  # of the square matrices whose product is the device's measure


class Milliseconds(NamedTuple):
    """Of one step: its median, and on CUDA its share of a row of steps by the host's clock, Python and launches included."""

    step: float
    back_to_back: float | None


@dataclass(frozen=True)
class ProductRate:
    """The largest rate of a square matrix product, and of which."""

    tflops: float
    of: str


def forward_backward(loss: Callable[..., Tensor], leaves: Sequence[Tensor]) -> None:
    """One step: gradients are new, as after `zero_grad(set_to_none=True)`."""
    for leaf in leaves:
        leaf.grad = None
    loss(*leaves).backward()


def milliseconds(step: Callable[[], object], device: torch.device, repeats: int) -> Milliseconds:
    """Time at least `repeats` steps after a warm-up, on the current device if it is CUDA."""
    if device.type == "cuda":
        return _cuda_milliseconds(step, repeats)
    first = _seconds(step)
    times = [first] if first > 1 else []  # what warms up within a second is no matter to a step of that length
    while len(times) < repeats or sum(times) < _SECONDS:
        times.append(_seconds(step))
    return Milliseconds(1e3 * median(times), None)


def product_rate(device: torch.device, dtype: torch.dtype, precision: Precision) -> ProductRate:
    """What the device's matrix products reach in the dtype that a loss may use: 16 bits on CUDA where `precision` is fast."""
    dtype = torch.float64 if dtype == torch.float64 else torch.float32
    halves = device.type == "cuda" and precision == "fast" and dtype == torch.float32
    with float32_products(tf32=False):
        rates = [_square_product(device, used) for used in ((torch.float16, torch.bfloat16) if halves else (dtype,))]
    return max(rates, key=lambda rate: rate.tflops)


@contextmanager
def float32_products(tf32: bool) -> Iterator[None]:
    """Let float32 matrix products round their factors to TF32, or not; afterwards all is as it was."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _square_product(device: torch.device, dtype: torch.dtype) -> ProductRate:
    n = _SIDE[device.type]
    a, b = torch.randn(2, n, n, device=device, dtype=dtype)
    product = partial(torch.mm, a, b, out=torch.empty_like(a))
    if device.type == "cuda":
        best = min(milliseconds(product, device, repeats=3).step for _ in range(3)) / 1e3
    else:
        best = min(_seconds(product) for _ in range(5))
    return ProductRate(2 * n**3 / best / 1e12, f"{str(dtype).removeprefix('torch.')}, {n} x {n} x {n}")


def _seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _cuda_milliseconds(step: Callable[[], object], repeats: int) -> Milliseconds:
    for _ in range(3):  # compilation, autotuning and the caching allocator
        step()
    torch.cuda.synchronize()
    # A host that has been idle is slow at first, and a step of half a millisecond is mostly the host's.
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < _SECONDS / 2:
        step()
        torch.cuda.synchronize()
        steps += 1
    repeats = max(repeats, int(_SECONDS * steps / (time.perf_counter() - begin)))
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        step()
        end.record()
    torch.cuda.synchronize()
    of_step = median(start.elapsed_time(end) for start, end in events)
    begin = time.perf_counter()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    return Milliseconds(of_step, 1e3 * (time.perf_counter() - begin) / repeats)
