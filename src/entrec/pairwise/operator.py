"""The pairwise log-sum-exp as one differentiable operator: which backend computes it, and its own gradient.

A backend is two functions, `log_sums` and `gradients` (what they mean stands in `tiled`). Around them are an
`autograd.Function` for eager code, where every microsecond counts for small batches, and a custom operator for torch.compile,
to which it is one opaque node with a gradient.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from entrec.pairwise import tiled
from entrec.pairwise.similarity import by_differences
from entrec.pairwise.tiled import Gradients, Pairs, Weighing

try:
    from entrec.pairwise import kernels
except ImportError:  # Triton comes with PyTorch for CUDA only
    kernels = None  # type: ignore[assignment]

Precision = Literal["fast", "ieee"]
Backend = Literal["auto", "dense", "tiled", "triton"]

# Pairs in a tile: on a CPU so many that a tile stays in the cache, elsewhere enough to fill the device.
_TILE = {"cpu": 2**18}
_TILE_ELSEWHERE = 2**26


class Spec(NamedTuple):
    """What a call asks for, in types that a custom operator may take; a learnt exponent comes as a tensor beside it."""

    similarity: str
    exponent: float
    scale: float
    exclude_diagonal: bool
    bounded: bool
    precision: str
    backend: str


def logsumexp(a: Tensor, b: Tensor | None, p: Tensor | None, spec: Spec) -> Tensor:
    """The l_i with their gradient; b is None where both sets are one."""
    if torch.compiler.is_compiling():
        return _as_tensor(_compiled(a, b, p, *spec))
    return _as_tensor(_LogSumExp.apply(a, b, p, spec))


def _as_tensor(x: Any) -> Tensor:
    """What untyped functions of PyTorch return, typed."""
    found: Tensor = x
    return found


def log_sums(a: Tensor, b: Tensor, p: Tensor | None, spec: Spec, same: bool, offset: int = 0) -> Tensor:
    """The l_i of all rows by the backend that the spec asks for; no graph is recorded."""
    pairs = _pairs(p, spec, same, offset)
    if by_triton(a, p, spec):
        return kernels.log_sums(a, b, pairs, spec.precision == "ieee")
    with _plain(a, spec):
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
        return kernels.gradients(a, b, pairs, rows, columns, wanted[:2], spec.precision == "ieee")
    with _plain(a, spec):
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
    elif a.dtype != torch.float32:
        missing = f"inputs of at most float32, got {a.dtype}"
    elif p is not None:
        missing = "an exponent that is a number, got a tensor"
    if missing and spec.backend == "triton":
        raise ValueError(f"backend='triton' needs {missing}; backend='auto' chooses another where it must")
    return missing is None


def _pairs(p: Tensor | None, spec: Spec, same: bool, offset: int) -> Pairs:
    similarity: Any = ("lp", spec.exponent if p is None else p) if spec.similarity == "lp" else spec.similarity
    return Pairs(similarity, spec.scale, spec.exclude_diagonal, same, offset, spec.bounded)


def _edge(a: Tensor, b: Tensor, pairs: Pairs, spec: Spec) -> int | None:
    """The side of a tile; None for the whole matrix at once."""
    if spec.backend == "dense":
        return None
    problems = a[..., 0, 0].numel() * (a.shape[-1] if by_differences(pairs.similarity) else 1)
    return max(16, int((_TILE.get(a.device.type, _TILE_ELSEWHERE) / problems) ** 0.5))


@contextlib.contextmanager
def _plain(a: Tensor, spec: Spec) -> Iterator[None]:
    """Neither autocast nor, where full precision is asked for, TF32 may narrow the products."""
    tf32 = a.is_cuda and spec.precision == "ieee" and torch.backends.cuda.matmul.allow_tf32
    with torch.autocast(device_type=a.device.type, enabled=False):
        if tf32:
            torch.backends.cuda.matmul.allow_tf32 = False
        try:
            yield
        finally:
            if tf32:
                torch.backends.cuda.matmul.allow_tf32 = True


class _LogSumExp(torch.autograd.Function):
    """`log_sums` with `gradients` as its gradient."""

    @staticmethod
    def forward(a: Tensor, b: Tensor | None, p: Tensor | None, spec: Spec) -> Tensor:
        return log_sums(a, a if b is None else b, p, spec, same=b is None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.spec = inputs
        ctx.save_for_backward(*tensors, output)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        wanted = tuple(ctx.needs_input_grad[:3])
        return *_LogSumExpGradient.apply(*gradient, *ctx.saved_tensors, ctx.spec, wanted), None


class _LogSumExpGradient(torch.autograd.Function):
    """The gradient as a function of its own, so that differentiating it again can be refused in words."""

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
        raise RuntimeError(
            "the pairwise log-sum-exp has no second derivative: its gradient is recomputed, not recorded. Take it in one "
            "backward pass without create_graph=True, or write torch.logsumexp(scale * a @ b.mT, dim=-1) for a small batch"
        )


def _all_gradients(
    gradient: Tensor,
    a: Tensor,
    b: Tensor | None,
    p: Tensor | None,
    sums: Tensor,
    spec: Spec,
    wanted: tuple[bool, bool, bool],
) -> Gradients:
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
    precision: str,
    backend: str,
) -> Tensor:
    spec = Spec(similarity, exponent, scale, exclude_diagonal, bounded, precision, backend)
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
    precision: str,
    backend: str,
    wanted: list[bool],
) -> list[Tensor]:
    spec = Spec(similarity, exponent, scale, exclude_diagonal, bounded, precision, backend)
    found = _all_gradients(gradient, a, b, p, sums, spec, (wanted[0], wanted[1], wanted[2]))
    return [x for x in found if x is not None]


@_compiled.register_fake
def _(a: Tensor, b: Tensor | None, p: Tensor | None, *spec: Any) -> Tensor:
    return a.new_empty(a.shape[:-1])


@_compiled_gradient.register_fake
def _(gradient: Tensor, a: Tensor, b: Tensor | None, p: Tensor | None, sums: Tensor, *rest: Any) -> list[Tensor]:
    return [torch.empty_like(x) for x, want in zip((a, b, p), rest[-1], strict=True) if want and x is not None]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3], output)
    ctx.spec = inputs[3:]


def _compiled_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    wanted = list(ctx.needs_input_grad[:3])
    found = iter(_compiled_gradient(gradient, *ctx.saved_tensors, *ctx.spec, wanted))
    return *(next(found) if want else None for want in wanted), *(None for _ in ctx.spec)


_compiled.register_autograd(_compiled_backward, setup_context=_remember)
