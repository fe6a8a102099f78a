"""Two processes train what one does: equal to each other and, where samples meet in the loss alone, to one process."""

import gc
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.modules.batchnorm import _BatchNorm

import entrec
from entrec.methods import METHODS
from entrec.training import checkpoint
from entrec.training import train as train_module
from entrec.training.assemble import Parts, assemble
from entrec.training.claim import claimed
from entrec.training.loop import Loop
from entrec.training.refusals import check_fit
from entrec.training.run import Run
from entrec.training.settings import settings
from tests.training.tiny import COMMON, HEADS, Cameras, Stopped, broken_at, every_tensor, folder_of_files, quick, source

State = dict[str, Tensor]
# Steps small enough that the rounding of sums in another order does not grow.
ALONE = {"recipe": "none", "optimizer": "sgd", "rate": 0.1, "epochs": 2, "checkpoint_every": None, "log_every": 1}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in METHODS),
    *((method, {"er": True}) for method in METHODS),
    ("swav", {"queue": 0}),
    ("dino", {"er": True, "estimator": "joe"}),
]
NO_CROPS: dict[str, dict[str, Any]] = {"dino": {"small_crops": 0}}  # a sample's views are all there are
WITH_BATCH_NORM = ["ir", "moco", "deepcluster", "dino"]


def case_name(method: str, given: dict[str, Any]) -> str:
    return "-".join([method, *given])


def without_batch_norm(wanted: Any, data: Any) -> Parts:
    """The run's parts with nothing in which one sample's activations reach another's."""
    parts = assemble(wanted, data)
    for name, module in list(parts.method.named_modules()):
        if isinstance(module, _BatchNorm):
            parts.method.set_submodule(name, nn.Identity())
    return parts


class Watched(Loop):
    """A loop that can be looked at when its run has ended."""

    latest: "Watched"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        Watched.latest = self


def state_after(method: str, out: Path, **given: Any) -> State:
    """The method's state on this rank at the end of a run."""
    run = quick(method, out, **given)
    assert checkpoint.load(run.checkpoint).place.epoch == run.config["epochs"]  # it is there for every rank
    return {name: x.detach().clone() for name, x in Watched.latest.parts.method.state_dict().items()}


def plain_runs(out: Path) -> dict[str, State]:
    """Every method on two cameras, whose views are given, without BatchNorm."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "Loop", Watched)
        patch.setattr(train_module, "assemble", without_batch_norm)
        patch.setattr(train_module, "finish", lambda *_: None)  # which knows no encoder without BatchNorm
        return {
            case_name(method, given): state_after(
                method, out / case_name(method, given), data=Cameras(), **ALONE, **NO_CROPS.get(method, {}), **given
            )
            for method, given in CASES
        }


def usual_runs(out: Path) -> dict[str, State]:
    """Methods as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "Loop", Watched)
        return {f"usual-{method}": state_after(method, out / f"usual-{method}") for method in WITH_BATCH_NORM}


def one_rank_diverges(rank: int, out: Path) -> str:
    """What each rank says when the loss is NaN on the second alone: all stop, and no broken checkpoint is written."""
    original = Loop._one_step

    def one_step(self: Loop, fed: Any, measured: bool) -> Any:
        if self.place.step == 4:
            raise Stopped  # no rank should come so far: a checkpoint was due after step 4
        return original(self, fed, measured)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_one_step", one_step)
        if rank == 1:
            broken_at(3, patch)
        try:
            quick("byol", out / "diverged", log_every=100)
        except (RuntimeError, Stopped) as error:  # where one rank stops alone, the other loses its connection
            return type(error).__name__
    return "nothing"


def a_folder_is_taken(out: Path) -> str:
    """What each rank says where another process trains."""
    try:
        quick("byol", out / "taken")
    except BlockingIOError as error:
        return str(error)
    return "nothing"


def _rank(rank: int, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in where.items()} | {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0"})
    torch.save({**plain_runs(folder / "runs"), **usual_runs(folder / "runs")}, folder / f"{rank}.pt")
    (folder / f"{rank}.txt").write_text(one_rank_diverges(rank, folder / "runs"))
    (folder / f"{rank}-taken.txt").write_text(a_folder_is_taken(folder / "runs"))
    gc.collect()  # as in tests/ranks.py
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, State]]]:
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with claimed(folder / "runs" / "taken"):
        spawn(_rank, (port, folder), nprocs=2)
    return folder, [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, State]:
    return plain_runs(tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(("method", "given"), CASES, ids=str)
def test_two_ranks_learn_what_one_process_does(
    method: str, given: dict[str, Any], ranks: tuple[Path, list[dict[str, State]]], alone: dict[str, State]
) -> None:
    name = case_name(method, given)
    for found in ranks[1]:
        assert found[name].keys() == alone[name].keys()
        for key, wanted in alone[name].items():
            assert torch.allclose(found[name][key], wanted, rtol=1e-3, atol=1e-5), key


@pytest.mark.parametrize(("method", "given"), CASES, ids=str)
def test_without_batch_norm_both_ranks_hold_the_same(
    method: str, given: dict[str, Any], ranks: tuple[Path, list[dict[str, State]]]
) -> None:
    one, other = (found[case_name(method, given)] for found in ranks[1])
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


@pytest.mark.parametrize("method", WITH_BATCH_NORM)
def test_parameters_queue_bank_centre_and_clusters_are_the_same_on_both_ranks(
    method: str, ranks: tuple[Path, list[dict[str, State]]]
) -> None:
    """All but the statistics of BatchNorm, which PyTorch synchronises on GPUs only."""
    one, other = (found[f"usual-{method}"] for found in ranks[1])
    kept = [key for key in one if "running_" not in key]
    assert [key for key in kept if not torch.equal(one[key], other[key])] == []
    assert all(bool(one[key].isfinite().all()) for key in kept)


def test_the_first_rank_writes_the_run(ranks: tuple[Path, list[dict[str, State]]]) -> None:
    run = Run(ranks[0] / "runs" / "usual-moco")
    assert len(run.metrics) == 8
    assert [row["step"] for row in run.metrics if "loss" in row] == [1, 2, 3, 4, 5, 6]
    assert run.summary["knn_top1"] is not None
    saved = {name.removeprefix("/parts/method/"): x for name, x in every_tensor(run).items() if "/parts/method/" in name}
    assert all(torch.equal(x, saved[name]) for name, x in ranks[1][0]["usual-moco"].items())


def test_a_loss_that_is_no_number_on_one_rank_stops_all_before_a_checkpoint_is_lost(
    ranks: tuple[Path, list[dict[str, State]]],
) -> None:
    folder, _ = ranks
    run = Run(folder / "runs" / "diverged")
    assert all(bool(x.isfinite().all()) for x in every_tensor(run).values() if isinstance(x, Tensor))
    assert [(folder / f"{rank}.txt").read_text() for rank in range(2)] == ["DivergedError"] * 2


def test_where_another_process_trains_all_ranks_are_refused(ranks: tuple[Path, list[dict[str, State]]]) -> None:
    folder, _ = ranks
    told = [(folder / f"{rank}-taken.txt").read_text() for rank in range(2)]
    assert all(text.startswith(f"another process trains in {folder / 'runs' / 'taken'}") for text in told)
    assert not (folder / "runs" / "taken").exists()
    assert list((folder / "runs").glob(".*")) == []


def test_a_batch_must_be_shared_by_the_ranks() -> None:
    parts = assemble(settings("simclr", {**COMMON, **HEADS["simclr"], "batch_size": 15}), source())
    with pytest.raises(ValueError, match="batch_size must be a multiple of the 2 devices, got 15"):
        check_fit(parts, 2)


@pytest.mark.slow
def test_torchrun_and_devices_do_the_same(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data")
    words = [f"--set={key}={value}" for key, value in {**COMMON, **HEADS["moco"]}.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    runs = [tmp_path / "torchrun", tmp_path / "devices"]
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "entrec"]
    for command, out, extra in zip((launched, [sys.executable, "-m", "entrec"]), runs, ([], ["--devices", "2"]), strict=True):
        arguments = ["train", "moco", "--data", str(data), "--out", str(out), *words, *extra]
        subprocess.run([*command, *arguments], env=environment, check=True, timeout=300)
    one, two = (every_tensor(Run(folder)) for folder in runs)
    assert [name for name in one if name.startswith("/parts/") and not _same(one[name], two[name])] == []
    assert entrec.evaluate(runs[0], device="cpu").knn.accuracy == Run(runs[0]).summary["knn_top1"]


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)
