"""The limit of training: the encoder alone, forward + backward on views that are on the device already."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from entrec.bench.timing import milliseconds
from entrec.branches.backbones import build_backbone
from entrec.branches.ema import Teacher
from entrec.training.captured import Captured

Way = Literal["eager", "captured", "compiled", "compiled and captured"]
WAYS: dict[str, tuple[Way, ...]] = {
    "cpu": ("eager",),
    "cuda": ("eager", "captured", "compiled", "compiled and captured"),
}
LIMIT: dict[str, Way] = {"cpu": "eager", "cuda": "compiled and captured"}  # what training is held against
_WARM_UP = 5  # calls: capture comes after the third


class Call(NamedTuple):
    """One call of an encoder in a step: the images' shape, and whether a gradient is taken."""

    shape: tuple[int, ...]
    learns: bool


def bare_rate(
    backbone: str, calls: Sequence[Call], batch: int, *, way: Way, device: torch.device, bf16: bool, repeats: int
) -> float | None:
    """Samples per second of the encoder alone: the calls of a step on views that are there, and the backward pass of them.

    Args:
        backbone: the encoder's name.
        calls: of a step; those without a gradient are a teacher's.
        batch: samples in a step.
        way: how the kernels are made and launched.
        device: where.
        bf16: under autocast to bfloat16.
        repeats: steps to time at the least.
    Returns: None where an encoder cannot be captured.
    """
    _, channels, side, _ = calls[0].shape
    student = build_backbone(backbone, channels, side).module.to(device)
    teacher = Teacher(student).module
    for module in (student, teacher):
        if device.type == "cuda":
            module.to(memory_format=torch.channels_last)
        if way.startswith("compiled"):
            module.compile(dynamic=False)
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    inputs = [(torch.randn(call.shape, device=device).contiguous(memory_format=layout), call.learns) for call in calls]
    precision = partial(torch.autocast, device.type, torch.bfloat16) if bf16 else nullcontext
    step: Callable[[], object] = partial(_step, student, teacher, inputs, precision)
    captured = Captured(step) if way.endswith("captured") else None
    if captured is not None:
        step = partial(captured, None)
    for _ in range(_WARM_UP):
        step()
    if captured is not None and captured.refused:
        return None
    return 1e3 * batch / milliseconds(step, device, repeats).step


def _step(
    student: nn.Module,
    teacher: nn.Module,
    inputs: list[tuple[Tensor, bool]],
    precision: Callable[[], AbstractContextManager[object]],
) -> None:
    with precision():
        outputs = [student(x) for x, learns in inputs if learns]
        with torch.no_grad():
            for x, learns in inputs:
                if not learns:
                    teacher(x)
    torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])
    for parameter in student.parameters():
        parameter.grad = None
