"""The limit of training: the encoder alone, forward + backward on views that are on the device already."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal

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


def bare_rate(
    backbone: str,
    channels: int,
    side: int,
    batch: int,
    *,
    way: Way,
    device: torch.device,
    bf16: bool,
    teacher: bool,
    apart: bool,
    repeats: int,
) -> float:
    """Samples per second of the encoder alone on two views of each sample.

    Args:
        backbone: its name.
        channels: of an image.
        side: of a view, in pixels.
        batch: samples.
        way: how the kernels are made and launched.
        device: where.
        bf16: under autocast to bfloat16.
        teacher: a teacher's encoder sees both views too, without a gradient.
        apart: one call per view, as where BatchNorm sees one view at a time.
        repeats: steps to time at the least.
    """
    encoder = build_backbone(backbone, channels, side).module.to(device)
    other = Teacher(encoder).module if teacher else None
    for module in (encoder, *([] if other is None else [other])):
        if device.type == "cuda":
            module.to(memory_format=torch.channels_last)
        if way.startswith("compiled"):
            module.compile()
    views = [torch.randn(batch, channels, side, side, device=device) for _ in range(2)]
    inputs = views if apart else [torch.cat(views)]
    if device.type == "cuda":
        inputs = [x.contiguous(memory_format=torch.channels_last) for x in inputs]
    precision = partial(torch.autocast, device.type, torch.bfloat16, bf16)
    step: Callable[[], object] = partial(_step, encoder, other, inputs, precision if bf16 else nullcontext)
    if way.endswith("captured"):
        step = partial(Captured(step), None)
    for _ in range(_WARM_UP):
        step()
    return 1e3 * batch / milliseconds(step, device, repeats).step


def _step(
    encoder: nn.Module, teacher: nn.Module | None, inputs: list[Tensor], precision: Callable[[], AbstractContextManager[object]]
) -> None:
    with precision():
        outputs = [encoder(x) for x in inputs]
        if teacher is not None:
            with torch.no_grad():
                for x in inputs:
                    teacher(x)
    torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])
    for parameter in encoder.parameters():
        parameter.grad = None
