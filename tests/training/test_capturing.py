"""When a step is captured and when it is not, told without a GPU; what the graphs compute is in test_captured.py."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from entrec.training.captured import _EAGER, Captured


class Stream:
    def wait_stream(self, other: "Stream") -> None:
        pass


class Graph:
    """Stands for a CUDA graph: counts its replays."""

    made: list["Graph"]

    def __init__(self) -> None:
        self.replays, self.generators = 0, 0
        Graph.made.append(self)

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generators += 1

    def replay(self) -> None:
        self.replays += 1

    def pool(self) -> str:
        return "pool"


@pytest.fixture(autouse=True)
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A machine with a GPU, as far as `Captured` can see; the pools that captures are asked to use."""
    Graph.made, used, mode = [], [], [0]

    @contextmanager
    def capture(graph: Graph, pool: Any, capture_error_mode: str) -> Iterator[None]:
        used.append(pool)
        yield

    fakes: dict[str, Any] = {
        "Stream": Stream, "current_stream": Stream, "stream": lambda stream: nullcontext(), "CUDAGraph": Graph,
        "graph": capture, "synchronize": lambda: None, "get_sync_debug_mode": lambda: mode[-1],
        "set_sync_debug_mode": mode.append,
    }  # fmt: skip
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return used


class Function:
    """Remembers where its inputs lay."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []

    def __call__(self, x: Tensor) -> str:
        self.inputs.append(x)
        return f"result {len(self.inputs)}"


def test_a_few_runs_as_it_is_then_one_capture_then_replays() -> None:
    function = Function()
    captured = Captured(function, [torch.Generator()])
    results = [captured(None, torch.full((2,), float(i))) for i in range(7)]
    assert len(function.inputs) == _EAGER + 1  # and once for the capture
    (graph,) = Graph.made
    assert (graph.replays, graph.generators) == (7 - _EAGER, 1)
    assert results == ["result 1", "result 2", "result 3"] + ["result 4"] * 4
    assert function.inputs[-1].tolist() == [6.0, 6.0]  # where the graph reads is the latest input


def test_another_way_or_another_size_is_another_graph_in_the_same_memory(pools: list[Any]) -> None:
    captured = Captured(Function())
    for how, size in (("held", 2), ("free", 2), ("free", 3)):
        for _ in range(_EAGER + 2):
            captured(how, torch.zeros(size))
    assert [graph.replays for graph in Graph.made] == [2, 2, 2]
    assert pools == [None, "pool", "pool"]


def test_what_waits_is_never_captured_and_says_where() -> None:
    def waiting(x: Tensor) -> None:
        mode: Any = torch.cuda.get_sync_debug_mode()
        if mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)

    captured = Captured(waiting)
    for _ in range(_EAGER + 3):
        captured(None, torch.zeros(2))
    assert captured.refused.startswith("it waits for the device (")
    assert "captured.py" in captured.refused
    assert Graph.made == []
    assert torch.cuda.get_sync_debug_mode() == 0  # as it was


def test_other_warnings_are_no_reason() -> None:
    captured = Captured(lambda x: warnings.warn("something else", stacklevel=2))
    for _ in range(_EAGER + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            captured(None, torch.zeros(2))
    assert captured.refused == ""
    assert len(Graph.made) == 1


def test_a_capture_that_fails_says_how_to_do_without() -> None:
    calls: list[None] = []

    def failing(x: Tensor) -> None:
        calls.append(None)
        if len(calls) > _EAGER:
            raise RuntimeError("operation not permitted when stream is capturing")

    captured = Captured(failing)
    for _ in range(_EAGER):
        captured(None, torch.zeros(2))
    with pytest.raises(RuntimeError, match=r"--set capture=false"):
        captured(None, torch.zeros(2))
