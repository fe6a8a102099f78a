"""Who computes the sums and their gradients: what a call asks for, and the backend that serves it.

A backend is two functions, `log_sums` and `gradients`; what they mean stands in `tiled`.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from entrec.cards import has_large_blocks, launching_on, runs_kernels
from entrec.pairwise import tiled
from entrec.pairwise.tiled import Gradients, Pairs, Weighing

try:
    from entrec.pairwise import kernels as kernels
except ImportError:  # Triton comes with PyTorch for CUDA only
    kernels = None  # type: ignore[assignment]

Precision = Literal["fast", "ieee"]
Backend = Literal["auto", "dense", "tiled", "triton"]

# Pairs in a tile: on a CPU so many that a tile stays in the cache, elsewhere enough to fill the device.
_TILE = {"cpu": 2**18}
_TILE_ELSEWHERE = 2**22
# Squared distances in more dimensions than this are left to float64 products where a card is good at those: an H200 takes as
# long for both at d = 25, and a quarter of the time by products at d = 128.
_WIDE_DISTANCES = 25
_WIDE_PRODUCTS = 2048  # and the kernels make products of wide rows again for each part of them: at 4096 that is twice as slow


class Spec(NamedTuple):
    """What a call asks for, in types that a custom operator may take; a learnt exponent comes as a tensor beside it.

    The similarity "cosine" is that of one set, normalised in the kernels; elsewhere directions come normalised, as "dot".
    """

    similarity: str
    exponent: float
    scale: float
    exclude_diagonal: bool
    bounded: bool
    directions: bool
    precision: str
    backend: str


def fuses(a: Tensor, b: Tensor | None, spec: Spec) -> bool:
    """Whether kernels take the rows as they are, normalisation and its gradient included."""
    return (
        b is None
        and spec.precision == "fast"
        and by_triton(a, None, spec)
        and a.shape[-1] <= kernels.sphere.WIDEST
        and spec.scale <= kernels.sphere.LARGEST_KAPPA
    )


def log_sums(a: Tensor, b: Tensor, p: Tensor | None, spec: Spec, same: bool, offset: int = 0) -> Tensor:
    """The l_i of all rows by the backend that the spec asks for; no graph is recorded."""
    if spec.similarity == "cosine":
        with launching_on(a):
            return kernels.sphere.log_sums(kernels.problems(a), spec.scale, spec.exclude_diagonal).reshape(a.shape[:-1])
    pairs = _pairs(p, spec, same, offset)
    if by_triton(a, p, spec):
        with launching_on(a):
            return kernels.log_sums(a, b, pairs, spec.precision == "ieee")
    with _plain(a):
        return tiled.log_sums(a, b, pairs, _edge(a, b, pairs, spec))


def gradients(
    a: Tensor,
    b: Tensor,
    p: Tensor | None,
    spec: Spec,
    same: bool,
    rows: Weighing | None,
    columns: Weighing | None,
    wanted: tuple[bool, bool, bool],
    offset: int = 0,
) -> Gradients:
    """The gradients of all rows, columns and a learnt exponent, as wanted."""
    pairs = _pairs(p, spec, same, offset)
    if by_triton(a, p, spec):
        with launching_on(a):
            return kernels.gradients(a, b, pairs, rows, columns, wanted[:2], spec.precision == "ieee")
    with _plain(a):
        return tiled.gradients(a, b, pairs, rows, columns, wanted, _edge(a, b, pairs, spec))


def by_triton(a: Tensor, p: Tensor | None, spec: Spec) -> bool:
    """Whether the Triton kernels compute this; if the caller asks for them and they cannot, an error says why."""
    if spec.backend in ("dense", "tiled"):
        return False
    missing = None
    if kernels is None:
        missing = "Triton, which is not installed"
    elif not (a.is_cuda or kernels.INTERPRETED):
        missing = f"tensors on a CUDA device, got {a.device}"
    elif a.is_cuda and not runs_kernels(a):
        missing = "an NVIDIA card of compute capability 8.0 (Ampere) or higher"
    elif a.numel() >= 2**31 or math.prod(a.shape[:-2]) >= 2**16:
        missing = f"fewer than 2^31 numbers and 2^16 problems, got shape {tuple(a.shape)}"
    elif a.dtype != torch.float32:
        missing = f"inputs of at most float32, got {a.dtype}"
    elif p is not None:
        missing = "an exponent that is a number, got a tensor"
    if missing and spec.backend == "triton":
        raise ValueError(f"backend='triton' needs {missing}; backend='auto' chooses another where it must")
    return missing is None and (spec.backend == "triton" or not _better_tiled(a, spec))


def _better_tiled(a: Tensor, spec: Spec) -> bool:
    if spec.similarity == "sqeuclidean":
        return a.shape[-1] > _WIDE_DISTANCES and has_large_blocks(a)
    return spec.similarity == "dot" and a.shape[-1] > _WIDE_PRODUCTS


def _pairs(p: Tensor | None, spec: Spec, same: bool, offset: int) -> Pairs:
    similarity: Any = ("lp", spec.exponent if p is None else p) if spec.similarity == "lp" else spec.similarity
    return Pairs(similarity, spec.scale, spec.exclude_diagonal, same, offset, spec.bounded, spec.directions)


def _edge(a: Tensor, b: Tensor, pairs: Pairs, spec: Spec) -> int | None:
    """The side of a tile; None for the whole matrix at once."""
    if spec.backend == "dense":
        return None
    return max(16, int((_TILE.get(a.device.type, _TILE_ELSEWHERE) / math.prod(a.shape[:-2])) ** 0.5))


@contextlib.contextmanager
def _plain(a: Tensor) -> Iterator[None]:
    """Neither autocast nor TF32, whose gradient would be off by more than "fast" allows, may narrow the products."""
    with torch.autocast(device_type=a.device.type, enabled=False):
        if not a.is_cuda:
            yield
            return
        products: Any = torch.backends.cuda.matmul
        setting, full = ("fp32_precision", "ieee") if hasattr(products, "fp32_precision") else ("allow_tf32", False)
        before = getattr(products, setting)
        setattr(products, setting, full)
        try:
            yield
        finally:
            setattr(products, setting, before)
