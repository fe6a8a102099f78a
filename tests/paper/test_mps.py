"""Sharing a GPU: the service is started, tried and ended, and whatever is wrong with it stops no run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from entrec.paper.runner.mps import side_by_side

PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
CONTROL = """#!/bin/sh
echo "$@ $(if [ $# = 0 ]; then cat; fi) $CUDA_MPS_PIPE_DIRECTORY" >> {told}
echo {said} >&2
exit {status}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a GPU, and with what a test puts into the folder on its PATH."""
    for name in (PIPE, LOG):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    return tmp_path


def control(machine: Path, status: int = 0, said: str = "nothing") -> Path:
    """NVIDIA's program, as far as one without a GPU can be; returns where it notes what it is asked."""
    path, told = machine / "bin" / "nvidia-cuda-mps-control", machine / "told"
    path.write_text(CONTROL.format(told=told, said=said, status=status))
    path.chmod(0o755)
    return told


def trial(monkeypatch: pytest.MonkeyPatch, machine: Path, code: str) -> None:
    """The process that tries the card does this instead."""
    path = machine / "bin" / "python-that-tries"
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def seen_by_a_process() -> str:
    return subprocess.run(["sh", "-c", f"echo ${PIPE}"], capture_output=True, text=True, check=True).stdout.strip()


def test_processes_within_find_the_service_and_none_does_after(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = control(machine)
    trial(monkeypatch, machine, f"echo tried ${PIPE} >> {told}")
    with side_by_side(3) as turns:
        assert turns == ""
        pipe = seen_by_a_process()
        assert Path(pipe).is_dir()
        assert Path(os.environ[LOG]).is_dir()
    assert told.read_text().split("\n") == [f"-d  {pipe}", f"tried {pipe}", f" quit {pipe}", ""]
    assert seen_by_a_process() == ""
    assert not Path(pipe).exists()


def test_it_ends_whatever_stops_the_runs(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = control(machine)
    trial(monkeypatch, machine, "exit 0")
    with pytest.raises(KeyboardInterrupt), side_by_side(2):
        raise KeyboardInterrupt
    assert "quit" in told.read_text()
    assert PIPE not in os.environ


@pytest.mark.parametrize(
    ("status", "tries", "why"),
    [
        (1, "exit 0", "could not be started: An instance of this daemon is already running"),
        (0, "echo first >&2; echo CUDA error: 805 >&2; exit 1", "could not use the GPU through MPS: CUDA error: 805"),
    ],
)
def test_where_it_does_not_work_runs_take_turns_and_it_is_said_why(
    machine: Path, monkeypatch: pytest.MonkeyPatch, status: int, tries: str, why: str
) -> None:
    control(machine, status, "An instance of this daemon is already running")
    trial(monkeypatch, machine, tries)
    with side_by_side(2) as turns:
        assert why in turns
        assert seen_by_a_process() == ""


def test_a_machine_without_it_says_so(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine / "bin"))
    with side_by_side(2) as turns:
        assert turns == "there is no nvidia-cuda-mps-control here"


@pytest.mark.parametrize(("jobs", "device"), [(1, "auto"), (4, "cpu")])
def test_nothing_is_started_that_is_not_needed(machine: Path, jobs: int, device: str) -> None:
    told = control(machine)
    with side_by_side(jobs, device) as turns:
        assert turns == ""
    assert not told.exists()


def test_a_service_that_runs_already_is_left_alone(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = control(machine)
    monkeypatch.setenv(PIPE, "/somewhere")
    with side_by_side(2) as turns:
        assert turns == ""
        assert seen_by_a_process() == "/somewhere"
    assert os.environ[PIPE] == "/somewhere"
    assert not told.exists()
