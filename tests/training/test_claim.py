"""A run's folder belongs to one process at a time."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from entrec import cli
from entrec.training.claim import claimed, lent, refuse_taken
from entrec.training.loop import Loop
from entrec.training.run import Run
from tests.training.tiny import COMMON, HEADS, files_in, folder_of_files, quick, rows, stopped_before

WAYS: list[dict[str, Any]] = [{}, {"resume": True}, {"overwrite": True}]
# What another process says of a lock: that it got it, which it keeps until it is told to end, or that it did not.
_TRIES = """
import fcntl, sys
file = open(sys.argv[1], "a")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("taken", flush=True)
else:
    print("held", flush=True)
    input()
"""


def lock_of(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


@contextmanager
def another_process(lock: Path) -> Iterator[str]:
    """Tries to hold a lock; killed in the end, as a run may be."""
    command = [sys.executable, "-c", _TRIES, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_folder_where_another_process_trains_is_refused_and_left_as_it_is(way: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with stopped_before(5):
        quick("byol", folder)
    with another_process(lock_of(folder)):
        before = files_in(tmp_path)
        with pytest.raises(BlockingIOError, match=rf"another process trains in {folder}, where nothing was changed"):
            quick("byol", folder, **way)
        assert files_in(tmp_path) == before
    assert len(quick("byol", folder, **(way or {"resume": True})).metrics) == 8  # a killed process holds nothing
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_another_process_is_about_to_begin_is_not_begun_twice(tmp_path: Path) -> None:
    with another_process(lock_of(tmp_path / "run")):
        with pytest.raises(BlockingIOError, match="another process trains in"):
            quick("byol", tmp_path / "run")
        assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


def test_the_command_says_so_and_exits_with_status_2(tmp_path: Path) -> None:
    with another_process(lock_of(tmp_path / "run")):
        words = ["train", "byol", "--data", str(folder_of_files(tmp_path / "data")), "--out", str(tmp_path / "run")]
        result = CliRunner().invoke(cli.app, words, env={"COLUMNS": "400", "TERM": "dumb"})
    assert result.exit_code == 2, result.output
    assert f"error: another process trains in {tmp_path / 'run'}" in result.output
    assert not (tmp_path / "run").exists()


def test_a_second_command_changes_nothing_of_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command itself, while the run is between two steps."""
    data, one_step, ended = folder_of_files(tmp_path / "data"), Loop._one_step, list[subprocess.CompletedProcess[str]]()
    command = [sys.executable, "-m", "entrec", "train", "byol", "--data", str(data), "--out", str(tmp_path / "run")]
    command += [f"--set={key}={value}" for key, value in {**COMMON, **HEADS["byol"]}.items()]

    def meanwhile(self: Loop, fed: Any, measured: bool) -> Any:
        if self.place.step == 4:
            self.writer.wait()
            before = files_in(tmp_path / "run")  # and not its lock beside it, which a process that closes it lets go
            ended.append(subprocess.run([*command, "--overwrite"], capture_output=True, text=True, timeout=300))
            assert files_in(tmp_path / "run") == before
        return one_step(self, fed, measured)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_one_step", meanwhile)
        run = quick("byol", tmp_path / "run", data)
    assert ended[0].returncode == 2, ended[0].stderr
    assert "another process trains in" in " ".join(ended[0].stderr.split())
    assert rows(run) == rows(quick("byol", tmp_path / "alone", data))


def test_who_has_a_folder_may_claim_it_again_and_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder) as ours:
        assert ours
        quick("simclr", folder)
        with pytest.raises(FileExistsError, match="is not empty"):
            quick("simclr", folder)
        with another_process(lock_of(folder)) as answer:
            assert answer == "taken"
    with another_process(lock_of(folder)) as answer:
        assert answer == "held"


def test_threads_of_a_process_refuse_each_other(tmp_path: Path) -> None:
    def other() -> bool:
        with pytest.raises(BlockingIOError):
            refuse_taken(tmp_path / "run")
        with claimed(tmp_path / "run") as ours:
            return ours

    with ThreadPoolExecutor(1) as pool:
        with claimed(tmp_path / "run"):
            assert not pool.submit(other).result()
            with another_process(lock_of(tmp_path / "run")) as answer:
                assert answer == "taken"
        with claimed(tmp_path / "run") as ours:
            assert ours


def test_a_folder_is_lent_to_the_processes_that_this_one_begins_and_to_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_process(lock_of(tmp_path / "run")):
        for parent, folder, wanted in ((os.getppid(), "run", True), (os.getppid(), "other", False), (1, "run", False)):
            monkeypatch.setattr(os, "getpid", lambda parent=parent: parent)
            environment = lent(tmp_path / folder)
            monkeypatch.undo()
            for key, value in environment.items():
                monkeypatch.setenv(key, value)
            with claimed(tmp_path / "run") as ours:
                assert ours is wanted


def test_a_disk_without_locks_is_no_reason_not_to_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(descriptor: int, *_: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "lockf", unknown)
    monkeypatch.setattr(os, "lockf", unknown)
    (tmp_path / ".run.lock").touch()
    quick("simclr", tmp_path / "run")
    with pytest.raises(FileExistsError, match="is not empty"):
        quick("simclr", tmp_path / "run")
    for way in WAYS[1:]:
        assert len(quick("simclr", tmp_path / "run", **way).metrics) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_beside_which_nothing_may_be_written_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is a volume's mount; root may write anywhere, so that `access` is told to say so."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("a lock was made"))
    with claimed(tmp_path / "run") as ours:
        assert ours
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", WAYS[1:], ids=str)
def test_what_a_killed_process_leaves_is_in_nobodys_way(way: dict[str, Any], tmp_path: Path) -> None:
    quick("simclr", tmp_path / "run")
    lock_of(tmp_path / "run").touch()
    assert len(quick("simclr", tmp_path / "run", **way).metrics) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_does_not_begin_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        quick("simclr", tmp_path / "runs" / "mine" / "run", "no/such/folder")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_the_same_by_any_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    with another_process(lock_of(folder)):
        for name in (Path(), Path("../run"), tmp_path / "link", tmp_path / "link" / ".." / "run"):
            with claimed(name) as ours:
                assert not ours
    assert len(quick("simclr", Path()).metrics) == len(Run(folder).metrics) == 8


def test_a_system_without_locks_is_no_reason_not_to_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrec.training.claim.fcntl", None)  # as on Windows
    with claimed(tmp_path / "run") as ours:
        assert ours
    refuse_taken(tmp_path / "run")
