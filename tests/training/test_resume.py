"""A run that was killed, at any moment, goes on and ends as if it had not been: bit for bit, on a CPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import entrec
from entrec.methods import METHODS
from entrec.training import checkpoint
from entrec.training import epoch as epoch_module
from entrec.training import train as train_module
from entrec.training.log import Log
from entrec.training.loop import Loop
from entrec.training.run import Run
from tests.training.tiny import (
    COMMON,
    HEADS,
    Cameras,
    Stopped,
    different,
    folder_of_files,
    quick,
    rows,
    stopped_before,
)  # fmt: skip

CASES: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in METHODS),
    *((method, {"er": True}) for method in ("simclr", "moco", "swav", "byol", "dino")),
    *(("byol", {"schedule": "cosine", "optimizer": optimizer}) for optimizer in ("lars", "sgd", "adamw")),
    ("dino", {"er": True, "estimator": "joe", "ema": None, "centring": False}),
    ("ir", {"negatives": 7}),
    ("deepcluster", {"assignment": "transport", "er": True}),
]


def resumed(step: int, method: str, out: Path, **given: Any) -> Run:
    """A run that is stopped before a step and then goes on."""
    with stopped_before(step):
        quick(method, out, **given)
    return quick(method, out, resume=True, **given)


@pytest.mark.parametrize(("method", "given"), CASES, ids=str)
def test_a_run_stopped_within_an_epoch_ends_as_if_it_had_not_been(method: str, given: dict[str, Any], tmp_path: Path) -> None:
    whole = quick(method, tmp_path / "whole", **given)
    parted = resumed(5, method, tmp_path / "parted", **given)  # the checkpoint is of step 4, within epoch 2
    assert different(whole, parted) == []
    assert rows(whole) == rows(parted)
    assert _without_clock(whole) == _without_clock(parted)
    one, other = ((run.folder / "encoder.safetensors").read_bytes() for run in (whole, parted))
    assert one == other


def test_the_comparison_would_notice(tmp_path: Path) -> None:
    one, other = quick("moco", tmp_path / "one"), quick("moco", tmp_path / "other", seed=1)
    found = different(one, other)
    for part in ("encoder.stem.0.weight", "teacher.module.0.stem.0.weight", "queue.rows", "projector.0.weight"):
        assert f"/parts/method/{part}" in found
    assert any(name.startswith("/parts/optimizer/state") for name in found)
    assert any(name.startswith("/parts/probe") for name in found)


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("whole")
    return quick("simclr", folder / "simclr"), quick("deepcluster", folder / "deepcluster", epochs=3)


@pytest.mark.parametrize("step", [0, 2, 3, 4])
def test_any_step_will_do(step: int, whole_runs: tuple[Run, Run], tmp_path: Path) -> None:
    """Before the first checkpoint too: there the run begins again."""
    whole, _ = whole_runs
    parted = resumed(step, "simclr", tmp_path / "parted")
    assert different(whole, parted) == []
    assert rows(whole) == rows(parted)


def test_several_stops_are_as_good_as_one(tmp_path: Path) -> None:
    whole = quick("dino", tmp_path / "whole")
    for step, resume in ((3, False), (4, True), (5, True)):
        with stopped_before(step):
            quick("dino", tmp_path / "parted", resume=resume)
    parted = quick("dino", tmp_path / "parted", resume=True)
    assert different(whole, parted) == []
    assert rows(whole) == rows(parted)


def _between_checkpoint_and_score(patch: pytest.MonkeyPatch) -> None:
    original = epoch_module.epoch_row

    def epoch_row(loop: Loop, log: Log, epoch: int) -> None:
        if epoch == 1:
            raise Stopped
        original(loop, log, epoch)

    patch.setattr(train_module, "epoch_row", epoch_row)


def _after_the_last_step(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Stopped

    patch.setattr(train_module, "finish", fail)


def _between_the_last_step_of_an_epoch_and_its_end(patch: pytest.MonkeyPatch) -> None:
    original = Loop.save

    def save(self: Loop) -> None:
        if self.place == (6, 2, 0):
            raise Stopped
        original(self)

    patch.setattr(Loop, "save", save)


def _while_a_checkpoint_is_written(patch: pytest.MonkeyPatch) -> None:
    original: Any = torch.save

    def half(content: Any, path: Path) -> None:
        original(content, path)
        if content["place"][0] == 6:
            os.truncate(path, path.stat().st_size // 2)
            raise Stopped

    patch.setattr(torch, "save", half)


@pytest.mark.parametrize(
    "moment",
    [
        _between_checkpoint_and_score,
        _after_the_last_step,
        _between_the_last_step_of_an_epoch_and_its_end,
        _while_a_checkpoint_is_written,
    ],
)
def test_any_moment_will_do(
    moment: Callable[[pytest.MonkeyPatch], None], whole_runs: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = whole_runs
    with monkeypatch.context() as patch:
        moment(patch)
        with pytest.raises(Stopped):
            quick("deepcluster", tmp_path / "parted", epochs=3)
    parted = quick("deepcluster", tmp_path / "parted", epochs=3, resume=True)
    assert different(whole, parted) == []
    assert rows(whole) == rows(parted)
    assert _without_clock(whole) == _without_clock(parted)


def test_a_run_of_files_goes_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    whole = quick("byol", tmp_path / "whole", data)
    parted = resumed(5, "byol", tmp_path / "parted", data=data)
    assert different(whole, parted) == []


def test_a_run_of_two_cameras_goes_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    whole = quick("cmc", tmp_path / "whole", Cameras(), shared=False)
    parted = resumed(5, "cmc", tmp_path / "parted", data=Cameras(), shared=False)
    assert different(whole, parted) == []


def test_files_that_were_skipped_before_the_stop_are_named_at_the_end(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", n=50, uneven=True)  # 2 of 50 are left out of each epoch's 3 batches
    for i in (3, 17, 30):
        next(data.glob(f"train/*/{i:03}.png")).write_bytes(b"no image")
    whole = quick("simclr", tmp_path / "whole", data)
    parted = resumed(5, "simclr", tmp_path / "parted", data=data)
    assert whole.summary["skipped"]
    assert whole.summary["skipped"] == parted.summary["skipped"]


def test_a_run_that_has_ended_can_be_asked_to_go_on(tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run")
    before, told = rows(run), _without_clock(run)
    assert rows(quick("simclr", tmp_path / "run", resume=True)) == before
    assert _without_clock(run) == told


def test_wall_seconds_are_those_of_the_whole_run(tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run")
    before = checkpoint.load(run.checkpoint).history.seconds
    quick("simclr", tmp_path / "run", resume=True)
    assert run.summary["wall_seconds"] > before > 0


def test_settings_need_not_be_given_again(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data")
    whole = quick("byol", tmp_path / "whole", data)
    with stopped_before(5):
        quick("byol", tmp_path / "parted", data)
    parted = entrec.train("byol", out=tmp_path / "parted", resume=True)
    assert different(whole, parted) == []
    assert parted.config["data"] == str(data)


def test_how_a_run_is_computed_and_shown_may_change(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    whole = quick("simclr", tmp_path / "whole", data)
    with stopped_before(5):
        quick("simclr", tmp_path / "parted", data)
    how = {"workers": 1, "log_every": 4, "evaluate_every": 2, "checkpoint_every": 5}
    parted = quick("simclr", tmp_path / "parted", data, resume=True, **how)
    assert [name for name in different(whole, parted) if not name.startswith("/config/")] == []


def test_a_row_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    whole = quick("simclr", tmp_path / "whole", epochs=4)
    out = tmp_path / "parted"
    with stopped_before(11):
        quick("simclr", out, epochs=4)
    text = (out / "metrics.csv").read_text()
    (out / "metrics.csv").write_text(text[: text.rindex("\n11,") + 2])  # power went off within the row of step 11
    assert rows(quick("simclr", out, resume=True, epochs=4)) == rows(whole)


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data")
    settings = {**COMMON, **HEADS["byol"], "epochs": 20, "checkpoint_every": 2, "evaluate_every": 20}
    words = [f"--set={key}={value}" for key, value in settings.items()]
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "entrec", "train", "byol", "--data", str(data), "--out", str(out), *words]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    run = Run(out)
    while process.poll() is None and not (run.checkpoint.is_file() and len(run.metrics) > 8):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 6 <= checkpoint.load(run.checkpoint).place.step < 60
    whole = entrec.train("byol", data=data, out=tmp_path / "whole", **settings)
    entrec.train("byol", out=out, resume=True)
    assert different(whole, run) == []
    assert rows(whole) == rows(run)


def _without_clock(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.summary.items() if key not in ("wall_seconds", "samples_per_second")}


def test_a_checkpoint_due_at_an_epochs_end_waits_for_its_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick("simclr", tmp_path / "whole", checkpoint_every=3)
    out = tmp_path / "parted"
    original = Loop.save

    def dying(self: Loop) -> None:
        if self.place.step == 3 and self.place.batch == 0:  # after the score, before the checkpoint
            raise Stopped
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "save", dying)
        with pytest.raises(Stopped):
            quick("simclr", out, checkpoint_every=3)
    assert rows(quick("simclr", out, resume=True, checkpoint_every=3)) == rows(whole)


@pytest.mark.parametrize("given", [{"precision": 32}, {"optimizer": None}, {"rate": 1, "batch_size": 16}], ids=str)
def test_what_was_given_may_be_given_again(given: dict[str, Any], tmp_path: Path) -> None:
    with stopped_before(5):
        quick("simclr", tmp_path / "run", **given)
    assert len(quick("simclr", tmp_path / "run", resume=True, **given).metrics) == 8
