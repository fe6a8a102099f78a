"""The teacher: a copy of the student that follows it."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

from entrec import checks


class Teacher(nn.Module):
    r"""A frozen deep copy of the student, whose parameters are an exponential moving average of the student's.

    .. math:: \theta_T \leftarrow m\, \theta_T + (1 - m)\, \theta_S

    Call `update` once after each step of the optimiser. Buffers: the teacher sees batches of its own, in train mode where the
    student is, so the statistics of its normalisation layers (BatchNorm) are its own and are never touched; all other
    buffers become the student's at each update.

    Args:
        student: copied as it is now, and not kept; wrappers (DistributedDataParallel, torch.compile) are taken off. Its
            parameters are float32 or better: an average in half precision loses most of its steps to rounding.

    Example:
        >>> student = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.zeros_(student.weight)
        >>> teacher = Teacher(student)
        >>> _ = nn.init.ones_(student.weight)
        >>> teacher.update(student, coefficient=0.75)
        >>> teacher.module.weight
        Parameter containing:
        tensor([[0.2500, 0.2500]])
    """

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        bare = _bare(student)
        half = [name for name, p in bare.named_parameters() if p.is_floating_point() and torch.finfo(p.dtype).bits < 32]
        if half:
            raise ValueError(
                f"student must keep its parameters in float32 or better, got {half[0]} and {len(half) - 1} more in half "
                "precision, in which a moving average stands still: compute in half precision by torch.autocast instead"
            )
        self.module = copy.deepcopy(bare).requires_grad_(False)

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the teacher's module gives, without a graph."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update(self, student: nn.Module, coefficient: float | Tensor) -> None:
        """One step of the average.

        Args:
            student: of the same structure as the one that was copied.
            coefficient: m, from 0 (become the student) to 1 (never move); a tensor of one element, in float64 best, where it
                is to be read on the device (its value is not checked: that would wait for the device).
        """
        if isinstance(coefficient, Tensor):
            checks.single("coefficient", coefficient)
        elif not 0 <= coefficient <= 1:
            raise ValueError(f"coefficient must be from 0 to 1, got {coefficient}")
        bare = _bare(student)
        mine, theirs = _matched("parameters", dict(self.module.named_parameters()), dict(bare.named_parameters()))
        if mine:
            _lerp(mine, theirs, 1 - coefficient)
        for own, other in zip(*_matched("buffers", _copied(self.module), _copied(bare)), strict=True):
            own.copy_(other)


def _lerp(mine: list[Tensor], theirs: list[Tensor], weight: float | Tensor) -> None:
    """Move mine towards theirs by the weight; a tensor as weight is a number on the device."""
    if not isinstance(weight, Tensor):
        torch._foreach_lerp_(mine, theirs, weight)
        return
    steps = list(torch._foreach_sub(theirs, mine))
    torch._foreach_mul_(steps, weight.reshape(()).to(mine[0]))
    torch._foreach_add_(mine, steps)


def cosine_ema(base: float, step: int, total: int) -> float:
    r"""The teacher's coefficient, from `base` at step 0 to 1 at step `total` (BYOL, Grill et al., 2020).

    .. math:: 1 - (1 - m_0) \cdot (\cos(\pi\, \mathrm{step} / \mathrm{total}) + 1) / 2

    Example:
        >>> [round(cosine_ema(0.99, step, 10), 4) for step in (0, 5, 10)]
        [0.99, 0.995, 1.0]
    """
    checks.whole("total", total, 1)
    if not 0 <= base <= 1:
        raise ValueError(f"base must be from 0 to 1, got {base}")
    if not 0 <= step <= total:
        raise ValueError(f"step must be from 0 to total={total}, got {step}")
    return 1 - (1 - base) * (math.cos(math.pi * step / total) + 1) / 2


def _bare(module: nn.Module) -> nn.Module:
    """The module inside its wrappers."""
    while True:
        inner = module.module if isinstance(module, DistributedDataParallel) else getattr(module, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def _copied(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that follow the student's: all but the statistics of normalisation layers."""
    own = {id(b) for part in module.modules() if isinstance(part, _NormBase) for b in part.buffers(recurse=False)}
    return {name: b for name, b in module.named_buffers() if id(b) not in own}


def _matched(what: str, mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors of teacher and student in the same order, if each has its counterpart and none is shared."""
    if mine.keys() != theirs.keys():
        odd = sorted(mine.keys() ^ theirs.keys())
        raise ValueError(f"student must have the {what} that the teacher copied, but only one of them has {', '.join(odd[:3])}")
    for name, own in mine.items():
        other = theirs[name]
        if own.shape != other.shape:
            raise ValueError(
                f"student must have the {what} that the teacher copied, but {name} has shape {tuple(other.shape)}, and "
                f"the teacher's {tuple(own.shape)}"
            )
        if own.numel() and own.data_ptr() == other.data_ptr():
            raise ValueError(f"student and teacher must share nothing, but {name} is one tensor in both")
    return list(mine.values()), [theirs[name] for name in mine]
