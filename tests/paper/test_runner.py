"""Runs that are made once: order, resumption, failures, time, names, and a cluster's jobs."""

import errno
import fcntl
import json
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrec.paper.runner import Cell, Data, Pool, left, local, make, named, opened, outcome
from entrec.paper.runner.notes import forget_failure
from entrec.paper.runner.slurm import submit
from entrec.training import loop
from entrec.training.loop import DivergedError
from entrec.training.run import Run, write_config, write_summary
from entrec.training.train import train

CELLS = [Cell(f"simclr-seed{seed}", "simclr", {"seed": seed}) for seed in range(3)]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(tmp_path / "runs", Data("shapes", images=64), {"epochs": 2, "batch_size": 32, "device": "cpu"}, keep=False)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of cells in the order in which they were trained, which is over at once."""
    seen: list[str] = []

    def trained(method: str, **given: Any) -> None:
        seen.append(given["out"].name)
        for name in ("checkpoints", "tensorboard"):
            (given["out"] / name).mkdir(parents=True, exist_ok=True)
        (given["out"] / "encoder.safetensors").touch()
        write_config(Run(given["out"]), {"method": method})
        write_summary(Run(given["out"]), {"linear_top1": 0.5})

    monkeypatch.setattr(local, "train", trained)
    return seen


def test_cells_are_made_in_their_order_and_once(pool: Pool, called: list[str]) -> None:
    assert make(left(CELLS[:2], pool), pool).done == [cell.name for cell in CELLS[:2]]
    assert make(left(CELLS, pool), pool).done == [CELLS[2].name]
    assert called == [cell.name for cell in CELLS]


def test_what_is_large_goes_and_what_results_are_made_of_stays(pool: Pool, called: list[str]) -> None:
    make(CELLS[:1], pool)
    assert {path.name for path in (pool.folder / CELLS[0].name).iterdir()} == {"config.yaml", "summary.json", "made.json"}
    facts = json.loads((pool.folder / CELLS[0].name / "made.json").read_text())
    assert facts["device"].endswith("CPU, 1 thread")  # as the tests compute
    assert facts["seconds"] >= 0
    make(CELLS[1:2], pool._replace(keep=True))
    assert (pool.folder / CELLS[1].name / "checkpoints").is_dir()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(DivergedError("NaN at step 3"), "NaN at step 3"), (MemoryError("no room\nat all"), "MemoryError: no room at all")],
)
def test_a_failure_of_any_kind_is_noted_and_stops_no_other(
    pool: Pool, called: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    whole: Any = vars(local)["train"]

    def failing(method: str, **given: Any) -> None:
        if given["seed"] == 1:
            raise error
        whole(method, **given)

    monkeypatch.setattr(local, "train", failing)
    made = make(left(CELLS, pool), pool)
    assert (made.done, made.failed) == ([CELLS[0].name, CELLS[2].name], [CELLS[1].name])
    assert outcome(pool.folder / CELLS[1].name) == ("failed", reason, isinstance(error, DivergedError))
    assert left(CELLS, pool) == []
    assert left(CELLS, pool, retry=True) == [CELLS[1]]
    monkeypatch.setattr(local, "train", whole)
    assert make(left(CELLS, pool, retry=True), pool).done == [CELLS[1].name]
    assert outcome(pool.folder / CELLS[1].name).state == "done"


def test_a_reason_names_no_folder_of_this_machine(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(method: str, **given: Any) -> None:
        raise DivergedError(f"the last good checkpoint is {given['out']}/checkpoints/last.ckpt")

    monkeypatch.setattr(local, "train", failing)
    make(CELLS[:1], pool)
    assert outcome(pool.folder / CELLS[0].name).reason == "the last good checkpoint is checkpoints/last.ckpt"


def test_no_run_is_begun_after_the_time_is_over(pool: Pool, called: list[str]) -> None:
    made = make(CELLS, pool, minutes=0)
    assert (made.done, made.not_begun) == ([], [cell.name for cell in CELLS])
    assert called == []
    assert left(CELLS, pool) == CELLS


@pytest.mark.parametrize("jobs", [1, 2])
def test_data_are_not_opened_for_nothing(tmp_path: Path, jobs: int) -> None:
    """As where all runs are made, and the data are not there any more."""
    pool = Pool(tmp_path / "runs", Data(str(tmp_path / "gone")), {})
    made = make([], pool, jobs)
    assert not any((made.done, made.failed, made.not_begun, made.elsewhere, made.stopped))


@pytest.mark.parametrize(("room", "shares"), [(2**40, True), (100, False)])
def test_data_are_shared_where_there_is_room(room: int, shares: bool, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: types.SimpleNamespace(free=room))
    source = opened(pool.data)
    assert (vars(local)["_shared"](source) is source) == (shares or not Path("/dev/shm").is_dir())


def test_runs_are_picked_by_their_names() -> None:
    assert named(CELLS, ["*seed1", "simclr-seed2"]) == CELLS[1:]
    assert named(CELLS, []) == CELLS
    with pytest.raises(ValueError, match=r"no run is named like 'byol.'; there are simclr-seed0"):
        named(CELLS, ["byol*"])


def test_a_killed_run_goes_on_where_it_was(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in its second epoch; then the steps of the first are not made again, and the result is the unbroken run's."""
    steps: list[int] = []
    one_step: Any = vars(loop.Loop)["_one_step"]

    def killed(self: Any, fed: Any, measured: bool) -> Any:
        steps.append(self.place.step)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return one_step(self, fed, measured)

    monkeypatch.setattr(loop.Loop, "_one_step", killed)
    with pytest.raises(KeyboardInterrupt):
        make(CELLS[:1], pool)
    assert steps == [0, 1, 2, 3]
    assert outcome(pool.folder / CELLS[0].name).state == "not run"
    other = pool._replace(given={**pool.given, "precision": "bf16"})
    with pytest.raises(ValueError, match=r"simclr-seed0 was stopped .* begun without a precision, not with bf16: go on as it"):
        make(CELLS[:2], other)
    assert outcome(pool.folder / CELLS[0].name).state == "not run"
    assert not (pool.folder / CELLS[1].name).exists()
    assert make(left(CELLS[:1], pool), pool).done == [CELLS[0].name]
    assert steps == [0, 1, 2, 3, 2, 3]
    wall = Run(pool.folder / CELLS[0].name).summary["wall_seconds"]  # over both sittings
    assert json.loads((pool.folder / CELLS[0].name / "made.json").read_text())["seconds"] >= round(wall, 1) - 0.1
    whole = train("simclr", data=opened(pool.data), out=pool.folder.parent / "whole", seed=0, **pool.given)
    assert whole.summary["linear_top1"] == Run(pool.folder / CELLS[0].name).summary["linear_top1"]


def test_a_done_run_is_never_made_again(pool: Pool, called: list[str]) -> None:
    """Also by a process that found it left, as it was done meanwhile by another."""
    folder = pool.folder / CELLS[0].name
    assert local.trained(CELLS[0], pool) == "done"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert local.trained(CELLS[0], pool) == "done"
    forget_failure(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert called == [CELLS[0].name]
    assert [path.name for path in pool.folder.iterdir()] == [CELLS[0].name]


def test_a_run_that_another_process_makes_is_left_to_it(pool: Pool, called: list[str]) -> None:
    pool.folder.mkdir()
    lock = pool.folder / f".{CELLS[0].name}.lock"
    holds = f"import fcntl; f = open({str(lock)!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        made = make(CELLS[:2], pool)
        assert (made.done, made.elsewhere) == ([CELLS[1].name], [CELLS[0].name])
        other.kill()
    assert make(CELLS[:1], pool).done == [CELLS[0].name]  # a killed process holds nothing, though its file is there
    assert called == [CELLS[1].name, CELLS[0].name]


def test_a_disk_without_locks_is_no_reason_to_make_no_runs(
    pool: Pool, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "lockf", unknown)
    assert make(CELLS[:1], pool).done == called == [CELLS[0].name]


def test_nothing_is_begun_on_a_gpu_that_failed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(method: str, **given: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(local, "train", failing)
    made = make(CELLS, pool)
    assert (made.failed, made.not_begun) == ([CELLS[0].name], [cell.name for cell in CELLS[1:]])
    assert made.stopped == "the GPU failed in simclr-seed0, and a process cannot use it again"
    assert left(CELLS, pool) == CELLS[1:]


def test_data_that_no_probe_can_judge_are_refused_before_any_run(
    pool: Pool, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened(pool.data)
    for lacking, told in (({"classes": ()}, "has no labels"), ({"test": None}, "has no test split")):
        monkeypatch.setattr(local, "opened", lambda data, lacking=lacking: replace(source, **lacking))
        with pytest.raises(ValueError, match=told):
            make(CELLS, pool)
    assert called == []


def test_data_that_cannot_be_opened_are_said_before_any_run_fails_by_them(pool: Pool, called: list[str]) -> None:
    with pytest.raises((ValueError, OSError), match="no-such-data"):
        make(CELLS, pool._replace(data=Data("no-such-data")))
    assert called == []
    assert not pool.folder.exists()


class FakeExecutor:
    """Submitit's, as far as it is used: jobs are run at once."""

    parameters: dict[str, Any]

    def __init__(self, folder: str) -> None:
        type(self).folder = folder

    folder = ""

    def update_parameters(self, **parameters: Any) -> None:
        type(self).parameters = parameters

    def map_array(self, function: Any, *columns: Any) -> list[Any]:
        return [
            types.SimpleNamespace(job_id=f"7_{n}", ended=function(*row)) for n, row in enumerate(zip(*columns, strict=True))
        ]


def test_a_cluster_gets_one_array_over_the_cells_left(pool: Pool, called: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.ModuleType("submitit")
    fake.__spec__ = types.SimpleNamespace(name="submitit")  # type: ignore[assignment]
    fake.AutoExecutor = FakeExecutor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "submitit", fake)
    make(CELLS[:1], pool)
    jobs = submit(left(CELLS, pool), pool, pool.folder.parent / "slurm", 2, {"slurm_partition": "gpu", "timeout_min": 60})
    assert jobs == ["7_0", "7_1"]
    assert called == [cell.name for cell in CELLS]
    wanted = {"slurm_array_parallelism": 2, "slurm_partition": "gpu", "timeout_min": 60, "gpus_per_node": 1}
    assert wanted.items() <= FakeExecutor.parameters.items()
    assert submit(left(CELLS, pool), pool, pool.folder.parent / "slurm") == []
    monkeypatch.setattr(FakeExecutor, "map_array", lambda self, function, *columns: [])
    several = pool._replace(folder=pool.folder.parent / "waiting", given={**pool.given, "devices": 4})
    submit(CELLS, several, pool.folder.parent / "slurm")
    assert FakeExecutor.parameters["gpus_per_node"] == 4
    assert {path.name for path in several.folder.iterdir()} == {cell.name for cell in CELLS}  # so that the folder is theirs
    assert left(CELLS, several) == CELLS


def test_without_submitit_it_is_said_what_to_install(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"pip install 'entrec\[slurm\]'"):
        submit(CELLS, pool, pool.folder)


def test_runs_that_lost_a_shared_gpu_go_on_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ("device lost", "done", "device lost"), ("done", "", "device lost")
    endings = [{cell.name: end for cell, end in zip(CELLS, ends, strict=True)} for ends in (first, second)]
    asked: list[list[str]] = []

    def in_processes(cells: list[Cell], *_: Any) -> Any:
        asked.append([cell.name for cell in cells])
        ended = endings[len(asked) - 1]
        return [(cell.name, ended[cell.name]) for cell in cells]

    monkeypatch.setattr(local, "_in_processes", in_processes)
    made = make(CELLS, pool, jobs=2)
    names = [cell.name for cell in CELLS]
    assert asked == [names, [names[0], names[2]]]
    assert (made.done, made.failed, made.stopped) == ([names[1], names[0]], [names[2]], "")
