"""How far a study's runs are, as their folders say it while they are being made."""

import os
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from entrec.paper.runner import Cell, Data, Pool, local, make, watch
from entrec.paper.runner.notes import note_failure
from entrec.paper.runner.watch import being_made, watched
from entrec.training.run import Metrics, Run, write_config, write_summary


def begun(folder: Path, epochs: int = 5, rows: tuple[int, ...] = ()) -> Path:
    """A run's folder with a row in each of some epochs."""
    folder.mkdir(parents=True)
    write_config(Run(folder), {"method": "byol", "epochs": epochs})
    if rows:
        metrics = Metrics(folder / "metrics.csv")
        for step, epoch in enumerate(rows, 1):
            metrics.write({"step": step, "epoch": epoch, "loss": 1.5})
    return folder


def test_a_run_is_named_with_its_epoch(tmp_path: Path) -> None:
    folders = [begun(tmp_path / "a", rows=(0, 0, 1, 2)), begun(tmp_path / "b"), tmp_path / "c"]
    assert being_made(folders, 0.0) == "a epoch 3 of 5, b begins"


def test_a_row_half_written_is_not_counted(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a", rows=(0, 1))
    with (folder / "metrics.csv").open("a") as file:
        file.write("3,2")
    assert being_made([folder], 0.0) == "a epoch 2 of 5"


def test_of_a_long_table_only_the_end_counts(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a", epochs=900, rows=tuple(range(800)))
    assert (folder / "metrics.csv").stat().st_size > 2 * watch._TAIL
    assert being_made([folder], 0.0) == "a epoch 800 of 900"


def test_what_has_ended_or_was_stopped_before_is_not_being_made(tmp_path: Path) -> None:
    done, failed, stopped = (begun(tmp_path / name, rows=(0,)) for name in ("done", "failed", "stopped"))
    write_summary(Run(done), {"linear_top1": 0.5})
    note_failure(failed, MemoryError("none left"))
    now = time.time()
    for name in ("config.yaml", "metrics.csv"):
        os.utime(stopped / name, (now - 60, now - 60))
    assert being_made([done, failed, stopped], now - 30) == ""
    assert being_made([done, failed, stopped], now - 90) == "stopped epoch 1 of 5"


def test_a_damaged_folder_hides_no_other(tmp_path: Path) -> None:
    damaged, fine = begun(tmp_path / "damaged", rows=(0,)), begun(tmp_path / "fine", rows=(0,))
    (damaged / "config.yaml").write_text("method: byol\nepochs: 5")  # cut off
    assert being_made([damaged, fine], 0.0) == "fine epoch 1 of 5"


def test_of_many_some_are_named(tmp_path: Path) -> None:
    folders = [begun(tmp_path / str(number), rows=(0,)) for number in range(6)]
    told = ", ".join(f"{number} epoch 1 of 5" for number in range(4))
    assert being_made(folders, 0.0) == f"{told}, 2 more"


def test_what_is_said_goes_on_at_once_and_nothing_comes_behind_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EVERY", 0.01)
    heard: list[str] = []
    with watched([], heard.append) as tell:
        tell("opening")
        assert heard == ["opening"]
    begun(tmp_path / "a", rows=(0,))
    with watched([tmp_path / "a"], heard.append):
        pass
    said = len(heard)
    time.sleep(0.05)
    assert len(heard) == said


def test_a_run_tells_how_far_it_is_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a log would say nothing for as long as a run takes."""
    monkeypatch.setattr(watch, "_EVERY", 0.01)
    told, heard = Event(), []

    def training(method: str, **given: Any) -> None:
        begun(given["out"], epochs=2, rows=(0, 1))
        assert told.wait(30)
        write_summary(Run(given["out"]), {"linear_top1": 0.5})

    def progress(part: str) -> None:
        heard.append(part)
        if part == "0 of 1 runs; simclr epoch 2 of 2":
            told.set()

    monkeypatch.setattr(local, "train", training)
    pool = Pool(tmp_path / "runs", Data("shapes", images=64), {"epochs": 2, "device": "cpu"}, keep=False)
    assert make([Cell("simclr", "simclr", {})], pool, progress=progress).done == ["simclr"]
    assert heard[:2] == ["opening the data", "0 of 1 runs"]
    assert heard[-1] == "1 of 1 runs, the last simclr"
