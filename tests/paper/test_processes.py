"""Runs in processes of their own: one that is killed costs its run alone, and whatever stops the caller stops them all."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entrec.paper.runner import Cell, Data, Pool, make, outcome
from entrec.paper.runner.cell import opened
from entrec.paper.runner.processes import Died, shared_out

pytestmark = pytest.mark.slow  # as each process imports PyTorch

_BEGUN = """
import os, sys, time
from pathlib import Path
from entrec.paper.runner.processes import shared_out

def begin(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    list(shared_out(sys.argv[1:], begin, 2))
"""


def killed_at_two(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def test_a_killed_process_loses_its_own_task_alone() -> None:
    found = dict(shared_out([1, 2, 3, 4], killed_at_two, 2))
    assert found.pop(2) == Died(-9)
    assert set(found) == {1, 3, 4}
    assert len(set(found.values())) <= 2  # what a process holds, data for instance, is there for its next task
    assert "SIGKILL" in str(Died(-9))
    assert str(Died(3)) == "its process ended with status 3"


def test_a_process_that_is_spent_does_no_more() -> None:
    found = dict(shared_out([1, 3, 4], killed_at_two, 1, spent=lambda pid: True))
    assert len(set(found.values())) == 3


def running(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_stops_the_caller_stops_all_and_begins_nothing_more(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, which a terminal sends to every process of the group, and a kill of the caller alone."""
    (tmp_path / "begun.py").write_text(_BEGUN)
    paths = [tmp_path / name for name in "abcd"]
    command = [sys.executable, str(tmp_path / "begun.py"), *map(str, paths)]
    caller = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: all(path.is_file() and path.read_text() for path in paths[:2]))
        pids = [int(path.read_text()) for path in paths[:2]]
        os.killpg(caller.pid, number) if number == signal.SIGINT else caller.kill()
        said = caller.communicate(timeout=30)[1]
        wait_until(lambda: not any(map(running, pids)), 5.0)
        assert not any(path.exists() for path in paths[2:])
        assert said.count("KeyboardInterrupt") == (number == signal.SIGINT)  # one traceback, not three
    finally:
        caller.kill()
        caller.communicate()


def test_processes_share_the_data_that_are_open(tmp_path: Path) -> None:
    """Opened once: by the time that the runs begin, the files are gone."""
    noise = np.random.default_rng(0)
    for place in range(96):
        file = tmp_path / "images" / ("train" if place < 64 else "test") / "ab"[place % 2] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(file)
    given = {"epochs": 1, "batch_size": 32, "device": "cpu"}
    pool = Pool(tmp_path / "runs", Data(str(tmp_path / "images"), backbone="tiny"), given, keep=False)
    assert len(opened(pool.data).train) == 64  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "images")
    cells = [Cell(f"simclr-seed{seed}", "simclr", {"seed": seed}) for seed in range(2)]
    assert sorted(make(cells, pool, jobs=2).done) == ["simclr-seed0", "simclr-seed1"]


class Deadly:
    """Kills the process that it is sent to."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return killed_at_two, (2,)


def test_a_run_whose_process_is_killed_is_noted_and_the_others_end(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "runs", Data("shapes", images=64), {"epochs": 1, "batch_size": 32, "device": "cpu"}, keep=False)
    cells = [Cell(f"simclr-seed{seed}", "simclr", {"seed": Deadly() if seed == 1 else seed}) for seed in range(4)]
    made = make(cells, pool, jobs=2)
    assert (sorted(made.done), made.failed) == ([f"simclr-seed{seed}" for seed in (0, 2, 3)], ["simclr-seed1"])
    killed = outcome(pool.folder / "simclr-seed1")
    assert killed.reason == "ChildProcessError: its process was ended by SIGKILL, as happens where memory is short"
    assert not killed.diverged
    assert not list(pool.folder.glob(".*"))
