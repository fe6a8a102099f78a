"""What commands that train refuse before any run, what they say of runs, and their exit status."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from entrec.cli import app
from entrec.paper.grid import PRESETS
from entrec.paper.runner import local
from entrec.training.loop import DivergedError
from entrec.training.run import Run
from tests.paper.grid.runs import TINY

FEW = ("--only", "simclr-er-seed0", "--only", "simclr-er-weight100-seed0")


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["paper", *words], env={"COLUMNS": "300"})


def said(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that were begun, none of which ends well."""
    begun: list[str] = []

    def failing(method: str, **given: Any) -> Run:
        begun.append(given["out"].name)
        raise DivergedError("NaN at step 3")

    monkeypatch.setattr(local, "train", failing)
    monkeypatch.setitem(PRESETS, "quick", TINY)
    return begun


def test_a_failed_run_is_an_exit_status_and_is_named_by_later_commands(trained: list[str], tmp_path: Path) -> None:
    words = ("weights", "--out", str(tmp_path), "--device", "cpu", *FEW)
    result = call(*words)
    assert result.exit_code == 1
    assert "0 runs were there, 0 made, 2 failed, 0 not begun" in said(result)
    assert "failed: simclr-er-seed0 (NaN at step 3)" in said(result)
    assert (tmp_path / "weights" / "table.md").is_file()  # all the same
    again = call(*words)
    assert again.exit_code == 0
    assert "2 failed before (simclr-er-seed0, simclr-er-weight100-seed0; --retry makes them again), 0 made" in said(again)
    assert len(trained) == 2
    assert call(*words, "--retry").exit_code == 1
    assert len(trained) == 4


def test_a_precision_is_that_of_all_runs(trained: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []

    def failing(method: str, **given: Any) -> Run:
        heard.append(given.get("precision"))
        raise DivergedError("NaN at step 3")

    monkeypatch.setattr(local, "train", failing)
    for precision in ((), ("--precision", "bf16"), ("--precision", "32")):
        call("weights", "--out", str(tmp_path), "--device", "cpu", "--retry", "--only", "simclr-er-seed0", *precision)
    assert heard == [None, "bf16", "32"]
    odd = call("weights", "--out", str(tmp_path / "odd"), "--precision", "fp16")
    assert odd.exit_code == 2
    assert "is not one of '32', 'bf16'" in said(odd)
    assert not (tmp_path / "odd").exists()


def test_a_single_run_is_not_several(trained: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "simclr-er-seed0"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text("{}")
    result = call("weights", "--out", str(tmp_path), "--device", "cpu", "--minutes", "0", *FEW)
    assert "1 run was there, 0 made, 0 failed, 1 not begun" in said(result)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["weights", "neighbours", "selection"])
def test_a_device_that_is_not_there_is_refused_before_any_run(name: str, trained: list[str], tmp_path: Path) -> None:
    for device, told in (("cuda", "--device cuda cannot be used"), ("tpu", "--device must be auto, cpu or cuda, got tpu")):
        result = call(name, "--out", str(tmp_path / "new"), "--device", device)
        assert result.exit_code == 2
        assert told in said(result)
    assert not (tmp_path / "new").exists()


def test_data_without_labels_are_refused_before_any_run(trained: list[str], tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / "images" / f"{number}.png")
    result = call("weights", "--out", str(tmp_path / "out"), "--device", "cpu", "--data", str(tmp_path / "images"))
    assert result.exit_code == 2
    assert "images has no labels, and a linear probe is what runs are judged by" in said(result)
    assert trained == []
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--devices", "2"), "take a preset of all images, as this one takes 64"),
        (("--devices", "2", "--images", "32"), "leave out --images"),
        (("--slurm", "slurm_partition=gpu"), "--slurm would change nothing, as it is for --launcher slurm"),
        (("--launcher", "slurm", "--minutes", "0"), "--minutes would change nothing, as a cluster's jobs have a limit"),
        (("--launcher", "slurm", "--slurm", "gpu"), "--slurm wants KEY=VALUE"),
        (("--render", "--seeds", "3"), "--seeds would change nothing, as --render makes no runs"),
        (("--render", "--only", "byol*", "--retry"), "--only and --retry would change nothing"),
    ],
)
def test_options_that_cannot_be_met_or_heard_are_refused(
    words: tuple[str, ...], told: str, trained: list[str], tmp_path: Path
) -> None:
    result = call("weights", "--out", str(tmp_path / "new"), "--device", "cpu", *words)
    assert result.exit_code == 2
    assert told in said(result)
    assert trained == []
    assert not (tmp_path / "new").exists()


def test_other_commands_refuse_them_too(tmp_path: Path) -> None:
    for name, words in (("neighbours", ("--seeds", "1")), ("neighbours", ("--retry",)), ("selection", ("--retry",))):
        result = call(name, "--out", str(tmp_path), "--render", *words)
        assert result.exit_code == 2
        assert f"{words[0]} would change nothing" in said(result)


@pytest.mark.slow
def test_ctrl_c_stops_runs_side_by_side_and_the_same_command_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "entrec", "paper", "weights", "--out", str(tmp_path), "--device", "cpu", "--jobs", "2"]
    caller = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        end = time.monotonic() + 120
        while len(list(tmp_path.glob("runs/*/config.yaml"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        os.killpg(caller.pid, signal.SIGINT)  # as a terminal does
        output = caller.communicate(timeout=60)[0]
    finally:
        caller.kill()
        caller.wait()
    assert caller.returncode == 130, output
    assert "Traceback" not in output
    begun = {path.name for path in tmp_path.glob("runs/simclr*")}
    assert len(begun) == 2
    assert not list(tmp_path.glob("runs/*/failed.txt"))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "3 made, 0 failed, 0 not begun" in again.stdout, again.stderr
