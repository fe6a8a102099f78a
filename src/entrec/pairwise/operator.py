"""The pairwise log-sum-exp as one differentiable operator: which backend computes it, and its own gradient.

A backend is two functions, `log_sums` and `gradients` (what they mean stands in `tiled`). Around them are an
`autograd.Function` for eager code, where every microsecond counts for small batches, and a custom operator for torch.compile,
to which it is one opaque node with a gradient.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from entrec.cards import has_large_blocks, is_transformed, launching_on, runs_kernels
from entrec.pairwise import tiled
from entrec.pairwise.similarity import by_differences
from entrec.pairwise.tiled import Gradients, Pairs, Weighing

try:
    from entrec.pairwise import kernels as kernels
except ImportError:  # Triton comes with PyTorch for CUDA only
    kernels = None  # type: ignore[assignment]

_NO_SECOND = (
    "the pairwise log-sum-exp has no second derivative: its gradient is recomputed, not recorded. Take it in one "
    "backward pass without create_graph=True, or write torch.logsumexp(scale * a @ b.mT, dim=-1) for a small batch"
)
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


def logsumexp(a: Tensor, b: Tensor | None, p: Tensor | None, spec: Spec) -> Tensor:
    """The l_i with their gradient; b is None where both sets are one."""
    if torch.compiler.is_compiling():
        return _as_tensor(_compiled(a, b, p, *spec))
    way = _TransformedLogSumExp if is_transformed(a) else _LogSumExp
    return _as_tensor(way.apply(a, b, p, spec))


def _as_tensor(x: Any) -> Tensor:
    """What untyped functions of PyTorch return, typed."""
    found: Tensor = x
    return found


def fuses(a: Tensor, b: Tensor | None, spec: Spec) -> bool:
    """Whether kernels take the rows as they are, normalisation and its gradient included."""
    return (
        b is None
        and spec.precision == "fast"
        and by_triton(a, None, spec)
        and a.shape[-1] <= kernels.sphere.WIDEST
        and spec.scale <= kernels.sphere.LARGEST_KAPPA
    )


def mean_logsumexp(z: Tensor, spec: Spec) -> Tensor:
    """The mean of the l_i of directions over the last dimension, where `fuses` holds, with as little left to do as can be."""
    if z.requires_grad and torch.is_grad_enabled():
        return _as_tensor(_MeanLogSumExp.apply(z, spec))
    return log_sums(z, z, None, spec, same=True).mean(dim=-1)


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
    elif a.numel() >= 2**31 or a[..., 0, 0].numel() >= 2**16:
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
    problems = a[..., 0, 0].numel() * (a.shape[-1] if by_differences(pairs.similarity) else 1)
    return max(16, int((_TILE.get(a.device.type, _TILE_ELSEWHERE) / problems) ** 0.5))


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


class _LogSumExp(torch.autograd.Function):
    """`log_sums` with `gradients` as its gradient."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None, p: Tensor | None, spec: Spec) -> Tensor:
        sums = log_sums(a, a if b is None else b, p, spec, same=b is None)
        ctx.save_for_backward(a, b, p, sums)
        ctx.spec = spec
        return sums

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        arguments: tuple[Any, ...] = (*gradient, *ctx.saved_tensors, ctx.spec, tuple(ctx.needs_input_grad[:3]))
        return *(_RefusedTwice.apply if torch.is_grad_enabled() else _all_gradients)(*arguments), None


class _TransformedLogSumExp(torch.autograd.Function):
    """The same in the form that `torch.func` asks for, which costs a small batch more than its kernels."""

    @staticmethod
    def forward(a: Tensor, b: Tensor | None, p: Tensor | None, spec: Spec) -> Tensor:
        return log_sums(a, a if b is None else b, p, spec, same=b is None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.spec = inputs
        ctx.save_for_backward(*tensors, output)

    backward = _LogSumExp.backward


class _RefusedTwice(torch.autograd.Function):
    """The gradient as a function of its own, so that differentiating it again is refused in words."""

    @staticmethod
    def forward(
        gradient: Tensor,
        a: Tensor,
        b: Tensor | None,
        p: Tensor | None,
        sums: Tensor,
        spec: Spec,
        wanted: tuple[bool, bool, bool],
    ) -> tuple[Tensor | None, ...]:
        return _all_gradients(gradient, a, b, p, sums, spec, wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(_NO_SECOND)


def only_once(gradients: Iterable[Tensor | None], *sources: Tensor | None) -> tuple[Tensor | None, ...]:
    """The same for gradients that have been made already, unrecorded, from these sources."""
    if not torch.is_grad_enabled():
        return tuple(gradients)
    return tuple(None if x is None else _as_tensor(_Once.apply(x, *sources)) for x in gradients)


class _Once(torch.autograd.Function):
    """Nothing, but for a place in the graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *sources: Tensor | None) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(_NO_SECOND)


class _MeanLogSumExp(torch.autograd.Function):
    """A mean's gradient is known but for a factor, so it is taken along the way, before autograd's own thread has to."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, spec: Spec) -> Tensor:
        with launching_on(z):
            mean, gradient = kernels.sphere.mean_and_gradient(kernels.problems(z), spec.scale, spec.exclude_diagonal)
        ctx.save_for_backward(z, gradient.view(z.shape))
        return mean.view(z.shape[:-2])

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        (factor,), (z, known) = gradient, ctx.saved_tensors
        with torch.no_grad():
            found = factor[..., None, None] * known
        return *only_once((found,), factor, z), None


def _all_gradients(
    gradient: Tensor,
    a: Tensor,
    b: Tensor | None,
    p: Tensor | None,
    sums: Tensor,
    spec: Spec,
    wanted: tuple[bool, bool, bool],
) -> Gradients:
    if spec.similarity == "cosine":
        flat = sums.reshape(-1, sums.shape[-1])
        with launching_on(a):
            in_a = kernels.sphere.gradient(kernels.problems(a), flat, gradient.reshape(flat.shape), spec.scale)
        return Gradients(in_a.reshape(a.shape), None, None)
    weighing = Weighing(sums, gradient)
    if b is None:
        return gradients(a, a, p, spec, True, weighing, weighing, wanted)
    return gradients(a, b, p, spec, False, weighing, None, wanted)


@torch.library.custom_op("entrec::pairwise_logsumexp", mutates_args=())
def _compiled(
    a: Tensor,
    b: Tensor | None,
    p: Tensor | None,
    similarity: str,
    exponent: float,
    scale: float,
    exclude_diagonal: bool,
    bounded: bool,
    directions: bool,
    precision: str,
    backend: str,
) -> Tensor:
    spec = Spec(similarity, exponent, scale, exclude_diagonal, bounded, directions, precision, backend)
    return log_sums(a, a if b is None else b, p, spec, same=b is None)


@torch.library.custom_op("entrec::pairwise_logsumexp_gradient", mutates_args=())
def _compiled_gradient(
    gradient: Tensor,
    a: Tensor,
    b: Tensor | None,
    p: Tensor | None,
    sums: Tensor,
    similarity: str,
    exponent: float,
    scale: float,
    exclude_diagonal: bool,
    bounded: bool,
    directions: bool,
    precision: str,
    backend: str,
    wanted: list[bool],
) -> list[Tensor]:
    spec = Spec(similarity, exponent, scale, exclude_diagonal, bounded, directions, precision, backend)
    found = _all_gradients(gradient, a, b, p, sums, spec, (wanted[0], wanted[1], wanted[2]))
    return [x.contiguous() for x in found if x is not None]


@_compiled.register_fake
def _(a: Tensor, b: Tensor | None, p: Tensor | None, *spec: Any) -> Tensor:
    return a.new_empty(a.shape[:-1])


@_compiled_gradient.register_fake
def _(gradient: Tensor, a: Tensor, b: Tensor | None, p: Tensor | None, sums: Tensor, *rest: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x, want in zip((a, b, p), rest[-1], strict=True) if want and x is not None]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3], output)
    ctx.spec = inputs[3:]


def _compiled_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    wanted = list(ctx.needs_input_grad[:3])
    found = iter(_compiled_gradient(gradient, *ctx.saved_tensors, *ctx.spec, wanted))
    return *(next(found) if want else None for want in wanted), *(None for _ in ctx.spec)


_compiled.register_autograd(_compiled_backward, setup_context=_remember)
