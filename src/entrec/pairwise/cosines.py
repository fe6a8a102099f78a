"""The cosine similarity of matching rows, which every reconstruction and every positive pair on the sphere is."""

from typing import Any

import torch
from torch import Tensor

from entrec.cards import is_transformed, launching_on, runs_kernels
from entrec.pairwise.operator import kernels
from entrec.pairwise.similarity import to_sphere


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Of matching rows of one dtype, unchecked; (..., d), (..., d) -> (...)."""
    if kernels is None or not (kernels.INTERPRETED or runs_kernels(a)) or a.dtype != torch.float32:
        return _plainly(a, b)
    if torch.compiler.is_compiling() or is_transformed(a) or is_transformed(b):
        return _plainly(a, b)
    found: Tensor = _Cosines.apply(a, b)
    return found


def _plainly(a: Tensor, b: Tensor) -> Tensor:
    return (to_sphere(a) * to_sphere(b)).sum(dim=-1)


class _Cosines(torch.autograd.Function):
    """The same in one launch each way, where plain steps take thirty."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        with launching_on(a):
            return kernels.rows.cosines(a.contiguous(), b.contiguous())

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (a, b) = gradient, ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: in steps that autograd can follow
            u, v = to_sphere(a), to_sphere(b)
            cosine = (u * v).sum(dim=-1, keepdim=True)
            in_a, in_b = ((y - cosine * x) / (z * x).sum(dim=-1, keepdim=True) for x, y, z in ((u, v, a), (v, u, b)))
            return g.unsqueeze(-1) * in_a, g.unsqueeze(-1) * in_b
        with launching_on(a):
            return kernels.rows.gradients(a.contiguous(), b.contiguous(), g, ctx.needs_input_grad)
