"""Where a step of training goes: the time of each of its parts, on the device that computes them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from entrec.bench.bare import Call
from entrec.training.feed import Fed
from entrec.training.loop import Loop
from entrec.training.update import Outcome

PARTS = ("data", "views", "forward", "loss", "backward", "optimiser", "memory", "probe", "logging")
_AHEAD = 0.5  # seconds that a GPU is kept busy first, so that what follows is launched before it begins
_UNTIL_CAPTURED = 5  # calls


class Step(NamedTuple):
    """Milliseconds of a step by part; and whether they are those of the graph that training launches."""

    parts: dict[str, float]
    replayed: bool


class _Marks:
    """Moments of a step on the device's own clock; those within a graph are there anew after each replay."""

    def __init__(self, on_gpu: bool, within_graph: bool = False) -> None:
        self.on_gpu = on_gpu
        self._event = {"enable_timing": True, **({"external": True} if within_graph else {})}
        self.moments: list[tuple[str, Any]] = []

    def now(self) -> Any:
        """This moment."""
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(**self._event)
        event.record()
        return event

    def mark(self, part: str) -> None:
        """This part is over; one without a name is the step's begin."""
        if not part:
            self.moments = []
        self.moments.append((part, self.now()))

    def milliseconds(self) -> dict[str, float]:
        """The sum over all stretches of each part."""
        if self.on_gpu:
            torch.cuda.synchronize()
        found: dict[str, float] = {}
        for (_, begin), (part, end) in zip(self.moments, self.moments[1:], strict=False):
            found[part] = found.get(part, 0.0) + self.between(begin, end)
        return found

    def between(self, begin: Any, end: Any) -> float:
        """Milliseconds between two moments that are over."""
        return float(begin.elapsed_time(end)) if self.on_gpu else 1e3 * (end - begin)


def step_parts(loop: Loop, steps: int) -> Step:
    """Where a step goes, the median over some.

    On a GPU it is the device's own time, within the graph of a whole step where training launches one: what the host does
    meanwhile is not in it. A step that is launched kernel by kernel is launched while the device is busy with something else;
    of more than a thousand kernels the later ones wait for the host all the same, which then counts.

    The forward pass is the time within the method's branches, and the loss the rest of it. Logging is a row's numbers, in
    shares of the steps between two rows; writing them is not in it.
    """
    on_gpu = loop.fabric.device.type == "cuda"
    feed = _batches(loop)
    graph = _Marks(on_gpu, within_graph=True) if loop.update.captured is not None and _graphs_tell() else None
    if graph is not None:
        with _told(loop, graph.mark):
            for _ in range(_UNTIL_CAPTURED):
                loop.update(next(feed), loop.total // 2)
    replayed = loop.update.captured is not None and bool(loop.update.captured._graphs) and graph is not None
    found = [_one(loop, feed, graph if replayed else None, on_gpu) for _ in range(steps + 1)][1:]  # the first sets things up
    return Step({part: median(step.get(part, 0.0) for step in found) for part in PARTS}, replayed)


def _batches(loop: Loop) -> Iterator[Fed]:
    while True:
        yield from loop.feed.epoch(0)


def _graphs_tell() -> bool:
    """Whether moments can be noted within a graph: since PyTorch 2.8."""
    try:
        torch.cuda.Event(enable_timing=True, external=True)
    except TypeError:
        return False
    return True


def _one(loop: Loop, feed: Iterator[Fed], graph: _Marks | None, on_gpu: bool) -> dict[str, float]:
    """One step; its graph has marks of its own, which are filled in as it runs."""
    around = _Marks(on_gpu)
    _occupy(on_gpu)
    around.mark("")
    fed = next(feed)
    if graph is None:
        loop.update._prepare(loop.total // 2, fed.seed)
        around.mark("data")
        with _told(loop, lambda part: around.mark(part) if part else None):
            outcome = loop.update._update(fed.labels, fed.places, *fed.crops)
        parts = around.milliseconds()
    else:
        outcome = loop.update(fed, loop.total // 2)
        parts = graph.milliseconds()
        parts["data"] = around.between(around.moments[0][1], graph.moments[0][1])
    parts["loss"] = parts.pop("forward")  # what is left of the forward pass outside its branches
    parts["forward"] = parts.pop("branches", 0.0)
    return {**parts, "logging": _logging(loop, outcome, on_gpu) / loop.settings.log_every}


def _logging(loop: Loop, outcome: Outcome, on_gpu: bool) -> float:
    marks = _Marks(on_gpu)
    _occupy(on_gpu)
    marks.mark("")
    loop._ask(loop._numbers(outcome))
    marks.mark("logging")
    return marks.milliseconds()["logging"]


def _occupy(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda._sleep(int(_AHEAD * 2e9))


@contextmanager
def _told(loop: Loop, mark: Callable[[str], None]) -> Iterator[None]:
    """Let the update, and the branches within its forward pass, tell when they are over."""
    branches = list(_branches(loop.parts.method))
    hooks, compiled = [], [(x, x._compiled_call_impl) for x in branches if x._compiled_call_impl is not None]
    for module in branches:
        if module._compiled_call_impl is None:
            hooks.append(module.register_forward_pre_hook(lambda *_: mark("forward")))
            hooks.append(module.register_forward_hook(lambda *_: mark("branches")))
    for module, call in compiled:  # whose hooks would be compiled with it
        module._compiled_call_impl = _marked(call, mark)
    before, loop.update.mark = loop.update.mark, mark
    try:
        yield
    finally:
        loop.update.mark = before
        for hook in hooks:
            hook.remove()
        for module, call in compiled:
            module._compiled_call_impl = call


def _marked(call: Callable[..., Any], mark: Callable[[str], None]) -> Callable[..., Any]:
    def marked(*args: Any, **kwargs: Any) -> Any:
        mark("forward")
        found = call(*args, **kwargs)
        mark("branches")
        return found

    return marked


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
