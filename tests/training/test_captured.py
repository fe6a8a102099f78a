"""Steps as CUDA graphs: the same numbers as without, to the last bit where the kernels are the same."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from entrec.methods import BYOL, METHODS, Step
from entrec.training.captured import Captured
from entrec.training.loop import Loop
from entrec.training.run import Run
from tests.training.tiny import every_tensor, folder_of_files, quick, rows, stopped_before

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("in_a_fixed_order"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LONGER = {"device": "cuda", "precision": "32", "epochs": 6}


def captured(loop: Loop) -> Captured[Any]:
    assert loop.update.captured is not None
    return loop.update.captured


def equal(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The names of the tensors that differ."""
    assert a.keys() == b.keys()
    return [name for name in a if isinstance(a[name], Tensor) and not torch.equal(a[name], b[name])]


@pytest.mark.parametrize("er", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_captured_run_is_the_uncaptured_one(method: str, er: bool, tmp_path: Path, loops: list[Loop]) -> None:
    as_graph = quick(method, tmp_path / "graph", er=er, **LONGER)
    as_it_is = quick(method, tmp_path / "plain", er=er, capture=False, **LONGER)
    assert captured(loops[0]).refused == ""
    assert len(captured(loops[0])._graphs) >= 1
    assert loops[1].update.captured is None
    assert equal(every_tensor(as_graph), every_tensor(as_it_is)) == []
    assert rows(as_graph) == rows(as_it_is)


@pytest.mark.parametrize("given", [{"optimizer": "adamw"}, {"optimizer": "sgd", "rate": 0.01}, {"schedule": "cosine"}], ids=str)
@pytest.mark.parametrize("method", ["byol", "swav"])  # whose prototypes begin to learn after an epoch
def test_every_optimizer_and_schedule_is_captured(
    method: str, given: dict[str, Any], tmp_path: Path, loops: list[Loop]
) -> None:
    if method == "swav":
        given = {key: value for key, value in given.items() if key != "schedule"}
    runs = [quick(method, tmp_path / str(capture), capture=capture, **LONGER, **given) for capture in (True, False)]
    assert captured(loops[0])._graphs
    assert equal(*map(every_tensor, runs)) == []


def test_files_are_finished_within_the_graph(tmp_path: Path, loops: list[Loop]) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    runs = [quick("byol", tmp_path / str(capture), data, capture=capture, workers=2, **LONGER) for capture in (True, False)]
    assert captured(loops[0])._graphs
    assert equal(*map(every_tensor, runs)) == []


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    whole = quick("dino", tmp_path / "whole", **LONGER)
    with stopped_before(10):
        quick("dino", tmp_path / "parted", **LONGER)
    parted = quick("dino", tmp_path / "parted", resume=True, **LONGER)
    assert equal(every_tensor(whole), every_tensor(parted)) == []


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lars"])
def test_a_run_begun_on_a_cpu_goes_on_on_a_gpu(optimizer: str, tmp_path: Path) -> None:
    given = {**LONGER, "optimizer": optimizer, "backbone": "resnet18"}
    with stopped_before(4):
        quick("byol", tmp_path / "graph", **{**given, "device": "cpu"})
    before = rows(Run(tmp_path / "graph"))
    shutil.copytree(tmp_path / "graph", tmp_path / "plain")
    # A GPU draws other views than a CPU, so the two ways to go on are compared with each other.
    runs = [quick("byol", tmp_path / way, resume=True, capture=way == "graph", **given) for way in ("graph", "plain")]
    assert equal(*map(every_tensor, runs)) == []
    for run in runs:
        assert rows(run)[:4] == before[:4]
        assert all(bool(x.isfinite().all()) for x in every_tensor(run).values() if isinstance(x, Tensor))


def test_a_step_that_waits_for_the_device_runs_as_it_is_and_is_named(
    tmp_path: Path, loops: list[Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = BYOL.update

    def waiting(self: BYOL, step: Step) -> None:
        assert float(step.loss) < 1e9
        original(self, step)

    monkeypatch.setattr(BYOL, "update", waiting)
    runs = [quick("byol", tmp_path / str(capture), capture=capture, **LONGER) for capture in (True, False)]
    assert "test_captured.py" in captured(loops[0]).refused
    assert captured(loops[0])._graphs == {}
    assert equal(*map(every_tensor, runs)) == []


def test_what_changes_between_calls_is_read_anew() -> None:
    generator, factor = torch.Generator("cuda"), torch.tensor(1.0, device="cuda")
    total = torch.zeros(4, device="cuda")

    def function(x: Tensor) -> Tensor:
        total.add_(factor * x)
        return total + torch.rand(4, device="cuda", generator=generator)

    graph = Captured(function, [generator])
    expected = torch.zeros(4, device="cuda")
    for call in range(8):
        x = torch.randn(4, device="cuda")
        factor.fill_(call)
        generator.manual_seed(call)
        found = graph(None, x).clone()
        expected += call * x
        again = torch.rand(4, device="cuda", generator=torch.Generator("cuda").manual_seed(call))
        torch.testing.assert_close(found, expected + again, rtol=1e-6, atol=1e-6)
    assert len(graph._graphs) == 1
