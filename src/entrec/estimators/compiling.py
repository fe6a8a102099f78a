"""What torch.compile needs said: which numbers are constants of the graph, and which are not."""

import math
from collections.abc import Hashable
from typing import TypeVar

import torch
from torch import Tensor

Constant = TypeVar("Constant", bound=Hashable)


def as_constant(x: Constant) -> Constant:
    """The number itself, also in compiled code: there it may be a symbol, but a dictionary's key becomes a constant."""
    (constant,) = {x: None}
    return constant


def log_count(n: int, like: Tensor) -> float | Tensor:
    """Log n; in compiled code as an operation of the graph, so that another batch size needs no other graph."""
    if torch.compiler.is_compiling():
        return torch.full((), n, dtype=like.dtype, device=like.device).log()
    return math.log(n)
