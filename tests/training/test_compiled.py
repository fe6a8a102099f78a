"""Compiled runs: close to plain ones, as their kernels round otherwise."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

from entrec.data import Held, Source
from entrec.training.loop import Loop
from tests.training.tiny import classes, every_tensor, pixels, quick

pytestmark = pytest.mark.usefixtures("in_a_fixed_order")
_NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
# On two cores a ResNet-18 would be compiled for a quarter of an hour.
_ON = [pytest.param("cpu", "tiny", marks=pytest.mark.slow), pytest.param("cuda", "resnet18", marks=_NEEDS_GPU)]


# Training magnifies what is rounded: SimCLR's losses of 16 images, at the usual rate, a hundredfold in 20 steps (on a CPU, its
# weights moved by 1e-7), to 2.8e-4 on a GPU. Four times the images and a tenth of the rate tell more of the kernels.
@pytest.mark.parametrize(("device", "backbone"), _ON)
@pytest.mark.parametrize(
    ("method", "er", "optimizer", "images", "rate"),
    [
        ("byol", False, "lars", 48, 0.3),
        ("byol", True, "lars", 192, 0.03),
        ("byol", False, "sgd", 48, 0.003),
        ("simclr", False, "lars", 192, 0.03),
        ("simclr", True, "lars", 192, 0.003),  # at ten times the rate its loss passes zero, of which nothing is 1e-4
    ],
)
def test_a_compiled_run_is_close_to_the_plain_one(
    method: str,
    er: bool,
    optimizer: str,
    images: int,
    rate: float,
    device: str,
    backbone: str,
    tmp_path: Path,
    loops: list[Loop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # else convolutions round to ten bits, each in its own way
    # At 32 pixels BatchNorm's last statistics are of 256 numbers; at 8 they are of 16, and magnify what was rounded.
    held = Held(pixels(images, side=32), classes(images))
    data = Source("colours", held, held, ("red", "green", "blue"), 3, 32, (0.4,) * 3, (0.25,) * 3, backbone=backbone)
    given = {"device": device, "precision": "32", "epochs": 7, "backbone": backbone, "batch_size": images // 3, "rate": rate}
    # Not AdamW: its first steps are as long whatever the gradient is, and magnify a hundredfold more.
    given |= {"er": er, "optimizer": optimizer}
    plain = quick(method, tmp_path / "plain", data, capture=False, compile=False, **given)
    compiled = quick(method, tmp_path / "compiled", data, compile=True, **given)
    assert [loop.update.compiles for loop in loops] == [False, True]
    graphs = [loop.update.captured is not None and len(loop.update.captured._graphs) > 0 for loop in loops]
    assert graphs == [False, device == "cuda"]
    a, b = (torch.tensor([row["loss"] for row in run.metrics if "loss" in row]) for run in (plain, compiled))
    assert len(a) == 7 * 3
    assert distance(a, b) < 1e-4
    # Of what was learnt: from where it began, all the way of 21 steps is a hundredth of the weights' own length.
    learnt, again = (every_tensor(run) for run in (plain, compiled))
    weights = [name for name, x in learnt.items() if "/method/" in name and isinstance(x, Tensor) and x.is_floating_point()]
    assert distance(*(torch.cat([x[name].flatten() for name in weights]) for x in (learnt, again))) < 1e-4


def distance(a: Tensor, b: Tensor) -> float:
    """Of b from a, in parts of a's length."""
    return float((a.double() - b.double()).norm() / a.double().norm())


def test_where_nothing_can_be_compiled_a_line_says_so_and_the_run_is_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = quick("byol", tmp_path / "plain", compile=False)
    monkeypatch.setattr("entrec.training.update.why_not", lambda kind: f"InductorError: no compiler for the {kind}")
    console = Console(file=io.StringIO(), width=200)
    found = quick("byol", tmp_path / "compiled", compile=True, console=console)
    assert isinstance(console.file, io.StringIO)
    assert "nothing is compiled, as a trial of it failed: InductorError: no compiler for the cpu" in console.file.getvalue()
    assert [row["loss"] for row in found.metrics if "loss" in row] == [row["loss"] for row in plain.metrics if "loss" in row]


@pytest.mark.slow
def test_a_compiler_that_is_missing_is_found_before_the_first_step(tmp_path: Path) -> None:
    code = "from entrec.compiling import why_not; print(why_not('cpu'))"
    lacking = {**os.environ, "CXX": "/nowhere/c++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", code], env=lacking, capture_output=True, text=True, check=True).stdout
    assert "Error: " in told
    assert len(told.splitlines()) == 1
