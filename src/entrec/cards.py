"""What the kernels must know of the card that they run on."""

import functools
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_AS_IT_IS = nullcontext()


def launching_on(x: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device: make it that of the points where it is not."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return _AS_IT_IS
    return torch.cuda.device(x.device)


def is_transformed(x: Tensor) -> bool:
    """Whether `torch.func` has wrapped the tensor, so that a kernel finds no memory behind it."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def runs_kernels(x: Tensor) -> bool:
    """Whether the points lie on a card that the kernels are made for: NVIDIA's, from Ampere on."""
    return x.is_cuda and torch.version.hip is None and _capability(x.device.index) >= (8, 0)


def is_hopper(x: Tensor) -> bool:
    """Whether the points lie on a Hopper card, whose own instructions the Gluon kernels are written for."""
    return runs_kernels(x) and _capability(x.device.index)[0] == 9


def has_large_blocks(x: Tensor) -> bool:
    """Whether a program may use more than the 99 KB of shared memory that every card since Ampere has: data-centre cards."""
    return runs_kernels(x) and _capability(x.device.index) in {(8, 0), (8, 7), (9, 0), (10, 0), (10, 3), (11, 0)}


@functools.cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)
