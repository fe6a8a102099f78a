"""Rows on the sphere: their directions, and the cosines of matching ones, which every positive pair there is."""

from typing import Any

import torch
from torch import Tensor

from entrec.cards import is_transformed, launching_on, runs_kernels
from entrec.pairwise.backends import kernels
from entrec.pairwise.similarity import to_sphere


def directions(z: Tensor) -> Tensor:
    """`to_sphere(z)`, on a GPU in one launch each way."""
    if not _by_kernel(z):
        return to_sphere(z)
    found: Tensor = _Directions.apply(z)
    return found


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosine similarity of matching rows of one dtype, unchecked; (..., d), (..., d) -> (...)."""
    if not _by_kernel(a, b):
        return (to_sphere(a) * to_sphere(b)).sum(dim=-1)
    found: Tensor = _Cosines.apply(a, b)
    return found


def _by_kernel(*points: Tensor) -> bool:
    """Whether one launch can take the place of the dozens that plain steps would be."""
    if kernels is None or torch.compiler.is_compiling():
        return False
    return all((kernels.INTERPRETED or runs_kernels(x)) and x.dtype == torch.float32 and not is_transformed(x) for x in points)


class _Directions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        with launching_on(z):
            return kernels.rows.directions(z.contiguous())

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        (g,), (z,) = gradient, ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: in steps that autograd can follow
            u = to_sphere(z)
            return (g - (g * u).sum(dim=-1, keepdim=True) * u) / _lengths(z, u)
        with launching_on(z):
            return kernels.rows.directions_gradient(z.contiguous(), g.contiguous())


class _Cosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        with launching_on(a):
            return kernels.rows.cosines(a.contiguous(), b.contiguous())

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (a, b) = gradient, ctx.saved_tensors
        if torch.is_grad_enabled():
            u, v = to_sphere(a), to_sphere(b)
            cosine, g = (u * v).sum(dim=-1, keepdim=True), g.unsqueeze(-1)
            return g * (v - cosine * u) / _lengths(a, u), g * (u - cosine * v) / _lengths(b, v)
        with launching_on(a):
            return kernels.rows.cosine_gradients(a.contiguous(), b.contiguous(), g.contiguous(), ctx.needs_input_grad)


def _lengths(z: Tensor, u: Tensor) -> Tensor:
    """The lengths of rows z with directions u, one where a row is zero."""
    length = (z * u).sum(dim=-1, keepdim=True)
    return torch.where(length > 0, length, 1.0)
