"""Launches without Triton's own look at every argument and setting, which is a tenth of what a small batch's entropy takes.

Triton compiles a kernel again for arguments of another kind (dtype, alignment, whole numbers that are 1 or multiples of 16).
Here the kind is told by a few comparisons, and what Triton compiled for it the first time is launched from then on.
"""

import os
from typing import Any

import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# What Triton has compiled, with its constants, by kernel, card, kinds of arguments and constants: one for the process, as
# Triton's own. Where a Triton's compiled kernels cannot be launched like this, `_unusable` holds the reason.
_compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
_unusable: list[TypeError] = []


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """`kernel[grid](*arguments, **constants)`.

    Args:
        kernel: a function of `triton.jit` or Gluon's.
        grid: of one to three numbers.
        *arguments: all that are no constants, in the kernel's order.
        **constants: by name, always in the same order; and `num_warps` and `num_stages` where they are given.
    """
    if INTERPRETED or _unusable:
        kernel[grid](*arguments, **constants)
        return
    key = (id(kernel), torch.cuda.current_device(), *map(_kind, arguments), *constants.values())
    known = _compiled.get(key)
    if known is None:
        _compiled[key] = kernel[grid](*arguments, **constants), _in_order(kernel, len(arguments), constants)
        return
    compiled, in_order = known
    try:
        compiled[(*grid, 1, 1)](*arguments, *in_order)
    except TypeError as error:  # a Triton whose compiled kernels take other arguments; nothing has been launched
        _unusable.append(error)
        kernel[grid](*arguments, **constants)


def _in_order(kernel: Any, before: int, constants: dict[str, Any]) -> tuple[Any, ...]:
    """The kernel's own constants as it takes them; a Gluon kernel may have the number of warps among them."""
    return tuple(constants[name] for name in kernel.arg_names[before:])


def _kind(x: Any) -> Any:
    """All of an argument that Triton may compile another kernel for."""
    if isinstance(x, Tensor):
        return x.dtype, x.data_ptr() % 16
    if isinstance(x, int):
        return x == 1, x % 16 == 0, -(2**31) <= x < 2**31
    if x is None or isinstance(x, float):
        return type(x)
    return x.base.dtype, x.base.data_ptr() % 16, tuple(x.block_shape)  # a tensor descriptor
