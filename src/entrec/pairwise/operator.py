"""The pairwise log-sum-exp as one differentiable operator, around what `backends` compute.

Eager code gets an `autograd.Function`, since every microsecond counts for small batches; torch.compile gets a custom operator,
to which it is one opaque node with a gradient.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from entrec.cards import is_transformed, launching_on
from entrec.pairwise.backends import Spec, gradients, kernels, log_sums
from entrec.pairwise.tiled import Gradients, Weighing

_NO_SECOND = (
    "the pairwise log-sum-exp has no second derivative: its gradient is recomputed, not recorded. Take it in one "
    "backward pass without create_graph=True, or write torch.logsumexp(scale * a @ b.mT, dim=-1) for a small batch"
)


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


def less_mean_logsumexp(constant: float, z: Tensor, spec: Spec) -> Tensor:
    """The constant less the mean of the directions' l_i, where `fuses` holds, with as little left to do as can be."""
    if z.requires_grad and torch.is_grad_enabled():
        return _as_tensor(_LessMeanLogSumExp.apply(constant, z, spec))
    return constant - log_sums(z, z, None, spec, same=True).mean(dim=-1)


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


class _LessMeanLogSumExp(torch.autograd.Function):
    """A mean's gradient is known but for a factor, so it is taken along the way, before autograd's own thread has to."""

    @staticmethod
    def forward(ctx: Any, constant: float, z: Tensor, spec: Spec) -> Tensor:
        with launching_on(z):
            rows = kernels.problems(z)
            value, gradient = kernels.sphere.less_mean_and_gradient(constant, rows, spec.scale, spec.exclude_diagonal)
        if z.ndim == 3:  # a view costs as much as a kernel
            ctx.save_for_backward(z, gradient)
            return value
        ctx.save_for_backward(z, gradient.view(z.shape))
        return value.view(z.shape[:-2])

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        (factor,), (z, known) = gradient, ctx.saved_tensors
        if not torch.is_grad_enabled():
            return None, factor[..., None, None] * known, None
        with torch.no_grad():
            found = factor[..., None, None] * known
        return None, *only_once((found,), factor, z), None


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
