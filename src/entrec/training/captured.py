"""A step as one CUDA graph: what took the host thousands of launches is launched at once."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor

Result = TypeVar("Result")
_EAGER = 3  # runs of its kind before a graph is made: libraries set themselves up, and the optimiser makes its buffers


class _Graph(NamedTuple):
    """What was captured: where its inputs are copied to, and where its results will be."""

    graph: Any
    inputs: tuple[Tensor, ...]
    result: Any


class Captured(Generic[Result]):
    """A function of tensors on a GPU that is captured as a CUDA graph after a few runs, and replayed from then on.

    The function must do the same at every call of its kind but for what it reads: its inputs, other tensors, which it may write
    too, and the generators, which are seeded before each call. Its result, tensors in any structure, is overwritten by the next
    call. A function that waits for the device cannot be captured: it runs as it is, and `refused` says where it waits.

    Args:
        function: of tensors.
        generators: that it draws from, besides PyTorch's own of the device.
    """

    def __init__(self, function: Callable[..., Result], generators: Sequence[Generator] = ()) -> None:
        self._function, self._generators = function, generators
        self._seen: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, _Graph] = {}
        self._pool: Any = None
        self._aside: Any = None
        self.refused = ""

    def __call__(self, how: Hashable, *inputs: Tensor) -> Result:
        """The function of the inputs; `how` tells apart calls between which it does other things."""
        kind = (how, *((x.shape, x.dtype) for x in inputs))
        if kind not in self._graphs:
            if self.refused or self._seen.get(kind, 0) < _EAGER:
                return self._eagerly(kind, inputs)
            self._graphs[kind] = self._capture(inputs)
        known = self._graphs[kind]
        for own, given in zip(known.inputs, inputs, strict=True):
            own.copy_(given, non_blocking=True)
        known.graph.replay()
        result: Result = known.result
        return result

    def _eagerly(self, kind: Hashable, inputs: tuple[Tensor, ...]) -> Result:
        """Run as it is, on a stream of its own as capture will, and the last time look whether it waits."""
        if self.refused:
            return self._function(*inputs)
        runs = self._seen[kind] = self._seen.get(kind, 0) + 1
        self._aside = self._aside or torch.cuda.Stream()
        here, aside = torch.cuda.current_stream(), self._aside
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            result = self._watched(inputs) if runs == _EAGER else self._function(*inputs)
        here.wait_stream(aside)
        return result

    def _watched(self, inputs: tuple[Tensor, ...]) -> Result:
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = self._function(*inputs)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        waits = [x for x in said if "synchronizing CUDA operation" in str(x.message)]
        if waits:
            self.refused = f"it waits for the device ({waits[0].filename}:{waits[0].lineno})"
        return result

    def _capture(self, inputs: tuple[Tensor, ...]) -> _Graph:
        graph: Any = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        own = tuple(x.clone() for x in inputs)
        torch.cuda.synchronize()
        # Other threads may go on: those that page-lock batches for the next steps.
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = self._function(*own)
        except RuntimeError as error:
            raise RuntimeError(
                "a step could not be captured as a CUDA graph, though it does not wait for the device; "
                "capture=False (--set capture=false) trains without"
            ) from error
        self._pool = graph.pool()
        return _Graph(graph, own, result)
