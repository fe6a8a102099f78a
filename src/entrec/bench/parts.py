"""Where a step of training goes: the time of each of its parts, on the device that computes them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from entrec.bench.bare import Call
from entrec.training.feed import Fed
from entrec.training.loop import Loop

PARTS = ("data", "views", "forward", "loss", "backward", "optimiser", "memory", "probe", "logging")
_AHEAD = 0.5  # seconds that a GPU is kept busy first, so that all launches of a step are made before it begins


class _Marks:
    """Moments of a step on the device's own clock."""

    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu, self.moments = on_gpu, [("", self._now(on_gpu))]

    @staticmethod
    def _now(on_gpu: bool) -> Any:
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def mark(self, part: str) -> None:
        """This part is over."""
        self.moments.append((part, self._now(self.on_gpu)))

    def milliseconds(self) -> dict[str, float]:
        """The sum over all stretches of each part."""
        if self.on_gpu:
            torch.cuda.synchronize()
        found: dict[str, float] = {}
        for (_, begin), (part, end) in zip(self.moments, self.moments[1:], strict=False):
            length = begin.elapsed_time(end) if self.on_gpu else 1e3 * (end - begin)
            found[part] = found.get(part, 0.0) + length
        return found


def step_parts(loop: Loop, steps: int) -> dict[str, float]:
    """Milliseconds of a step by part (`PARTS`), the median over some steps that are launched kernel by kernel.

    On a GPU it is the device's time alone: launches are made while it is busy with something else. The forward pass is the
    time within the method's branches, and the loss the rest of it; compiled branches cannot be told from it. Logging is a row's
    numbers, in shares of the steps between two rows; writing them is not in it.
    """
    on_gpu, found = loop.fabric.device.type == "cuda", []
    feed = loop.feed.epoch(0)
    for done in range(steps + 1):  # the first sets things up
        begin = time.perf_counter()
        fed = next(feed, None)
        if fed is None:
            feed = loop.feed.epoch(0)
            fed = next(feed)
        data = 1e3 * (time.perf_counter() - begin)
        found.append({"data": data, **_one(loop, fed, min(done, loop.total - 1), on_gpu)})
    return {part: median(step.get(part, 0.0) for step in found[1:]) for part in PARTS}


def _one(loop: Loop, fed: Fed, done: int, on_gpu: bool) -> dict[str, float]:
    update = loop.update
    update._prepare(done, fed.seed)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda._sleep(int(_AHEAD * 2e9))
    marks = _Marks(on_gpu)
    with _told(loop, marks):
        loop._ask(loop._numbers(update._update(fed.labels, fed.places, *fed.crops)))
        marks.mark("logging")
    by_part = marks.milliseconds()
    by_part["logging"] /= loop.settings.log_every
    if not loop.update.compiles:
        by_part["loss"] = by_part.pop("forward")  # what is left of the forward pass outside its branches
        by_part["forward"] = by_part.pop("branches", 0.0)
    return by_part


@contextmanager
def _told(loop: Loop, marks: _Marks) -> Iterator[None]:
    """Let the update, and the branches within its forward pass, tell when they are over."""
    hooks = []
    if not loop.update.compiles:
        for module in _branches(loop.parts.method):
            hooks.append(module.register_forward_pre_hook(lambda *_: marks.mark("forward")))
            hooks.append(module.register_forward_hook(lambda *_: marks.mark("branches")))
    before, loop.update.mark = loop.update.mark, marks.mark
    try:
        yield
    finally:
        loop.update.mark = before
        for hook in hooks:
            hook.remove()


def _branches(method: nn.Module) -> Iterator[nn.Module]:
    """The modules that a method calls in its forward pass, but for the loss."""
    for name, module in method.named_children():
        if isinstance(module, nn.ModuleList):
            yield from module
        elif name != "loss":
            yield module


def encoder_calls(loop: Loop) -> list[Call]:
    """What the encoders of a step are called with, by the student and by a teacher."""
    calls: list[Call] = []

    def note(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        calls.append(Call(tuple(given[0].shape), torch.is_grad_enabled()))

    teacher = getattr(loop.method, "teacher", None)
    encoders = [loop.method.encoder, *getattr(loop.method, "other_encoders", ())]
    hooks = [x.register_forward_pre_hook(note) for x in (*encoders, *([] if teacher is None else [teacher.module]))]
    fed = next(loop.feed.epoch(0))
    loop.update._prepare(0, fed.seed)
    loop.update._update(fed.labels, fed.places, *fed.crops)
    for hook in hooks:
        hook.remove()
    return calls
