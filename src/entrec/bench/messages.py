"""What a step of training sends to the other ranks and what it computes, message by message and product by product.

PyTorch dispatches collectives like any other operator, also those that DistributedDataParallel sends from C++, which a wrapper
around `torch.distributed` would miss. So a dispatch mode sees them all, with their tensors.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from types import FrameType
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from entrec.training.loop import Loop

DDP = "DistributedDataParallel"
_SETTLES = 2  # steps after which DistributedDataParallel has ordered its buckets as gradients come, told in messages of its own
_KINDS = {"allreduce": "all_reduce", "allgather": "all_gather", "allgather_base": "all_gather"}


@dataclass(frozen=True)
class Message:
    """What this rank gives to one collective.

    Args:
        part: of the step: forward, backward, memory, probe, ... (`entrec.training.update.Update.mark`).
        kind: all_reduce, all_gather, broadcast, ...
        sender: the function of entrec's that sends it, or DistributedDataParallel.
        elements: numbers that this rank gives.
        bytes: of these.
    """

    part: str
    kind: str
    sender: str
    elements: int
    bytes: int

    @property
    def gradients(self) -> bool:
        """Whether it sums gradients of parameters over the ranks: the method's, or in the part `probe` the online probe's."""
        return self.sender == DDP and self.kind == "all_reduce"


@dataclass(frozen=True)
class Work:
    """One step of one rank, its row of metrics.csv included (the part `logging`).

    Args:
        messages: in the order in which they were sent.
        flops: operations of matrix products and convolutions, by part, but for those of the next.
        pairwise_flops: those among all pairs of rows, by part.
        parameters: numbers that the method's optimiser changes.
        probe_parameters: numbers that the online probe's does.
    """

    messages: list[Message]
    flops: dict[str, int]
    pairwise_flops: dict[str, int]
    parameters: int
    probe_parameters: int

    @property
    def reduced(self) -> int:
        """Gradients of the method that were summed over ranks: as many as it has parameters, if each is once."""
        return sum(x.elements for x in self.messages if x.gradients and x.part != "probe")

    @property
    def probe_reduced(self) -> int:
        """The same of the online probe."""
        return sum(x.elements for x in self.messages if x.gradients and x.part == "probe")

    @property
    def others(self) -> list[Message]:
        """All messages but the gradients."""
        return [x for x in self.messages if not x.gradients]


class Watch(TorchDispatchMode):
    """Notes messages and operations while it is entered; `mark` tells to which part belongs what came since the last one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.messages: list[Message] = []
        self.flops: dict[str, int] = {}
        self.pairwise_flops: dict[str, int] = {}
        self._sent: list[Message] = []
        self._computed = {True: 0, False: 0}  # among all pairs, or not

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let the operator run, and note it."""
        found = func(*args, **(kwargs or {}))
        if func.namespace == "c10d":
            self._sent.append(_message(func, args))
        elif func._overloadpacket in flop_registry:
            flops = flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=found)
            self._computed[_is_pairwise()] += flops
        return found

    def mark(self, part: str) -> None:
        """This part is over."""
        self.messages += [replace(x, part=part) for x in self._sent]
        self.flops[part] = self.flops.get(part, 0) + self._computed[False]
        self.pairwise_flops[part] = self.pairwise_flops.get(part, 0) + self._computed[True]
        self._sent, self._computed = [], {True: 0, False: 0}


def watched_step(loop: Loop) -> Work:
    """What one step does, in the middle of a run; the loop goes on from its weights."""
    fed, update, watch = next(loop.feed.epoch(0)), loop.update, Watch()
    for done in range(_SETTLES):
        update(fed, min(done, loop.total - 1))
    before, update.mark = update.mark, watch.mark
    try:
        with watch:
            outcome = update(fed, min(_SETTLES, loop.total - 1))
            loop._ask(loop._numbers(outcome))
            watch.mark("logging")
    finally:
        update.mark = before
    learnt = sum(x.numel() for x in loop.parts.method.parameters() if x.requires_grad)
    of_probe = 0 if update.probe is None else sum(x.numel() for x in update.probe.parameters() if x.requires_grad)
    return Work(watch.messages, watch.flops, watch.pairwise_flops, learnt, of_probe)


def _message(func: Any, args: tuple[Any, ...]) -> Message:
    given = list(_tensors(args[_given(func)]))
    name = func._schema.name.removeprefix("c10d::").strip("_")
    elements, size = sum(x.numel() for x in given), sum(x.numel() * x.element_size() for x in given)
    return Message("", _KINDS.get(name, name), _sender(), elements, size)


def _given(func: Any) -> int:
    """The place of what a rank gives among a collective's arguments, where another is what it receives."""
    names = [x.name for x in func._schema.arguments]
    return next((i for i, name in enumerate(names) if name.startswith("input")), 0)


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        return iter((x,))
    return chain.from_iterable(_tensors(part) for part in x)


def _callers() -> Iterator[tuple[str, FrameType]]:
    """The modules that led here, from the last one on, with their frames."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != __name__:
            yield module, frame
        frame = frame.f_back


def _sender() -> str:
    """Who asked `torch.distributed` for a message; what goes past it, from C++, is sent by DistributedDataParallel."""
    asked = False
    for module, frame in _callers():
        asked = asked or module.startswith("torch.distributed.")
        if asked and not module.startswith("torch."):
            return f"{module.removeprefix('entrec.')}.{frame.f_code.co_name}"
        if module.startswith("entrec."):
            break
    return DDP


def _is_pairwise() -> bool:
    return any(module.startswith("entrec.pairwise.") for module, _ in _callers())
