"""Training on a GPU: every method in bfloat16, from memory and from files, in channels-last, compiled."""

from pathlib import Path
from typing import Any

import pytest
import torch

from entrec.data import open_source
from entrec.methods import METHODS
from entrec.training import checkpoint
from entrec.training.feed import Feed
from entrec.views import Augment, recipe
from tests.training.tiny import every_tensor, folder_of_files, quick, rows, stopped_before

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def all_finite(run: Any) -> bool:
    return all(bool(x.isfinite().all()) for x in every_tensor(run).values() if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("er", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("precision", ["bf16", "32"])
def test_every_method_takes_its_steps(method: str, er: bool, precision: str, tmp_path: Path) -> None:
    run = quick(method, tmp_path / "run", er=er, device="cuda", precision=precision)
    assert len(run.metrics) == 8
    assert all_finite(run)
    assert 0 <= run.summary["linear_top1"] <= 1
    state = checkpoint.load(run.checkpoint).parts["method"]
    assert all(x.dtype in (torch.float32, torch.int64) for x in state.values())  # autocast leaves memory in full


@pytest.mark.parametrize("method", ["byol", "deepcluster"])
def test_files_are_decoded_by_workers_and_finished_on_the_device(method: str, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path / "data", uneven=True)
    run = quick(method, tmp_path / "run", data, device="cuda", workers=2)
    assert len(run.metrics) == 8
    assert all_finite(run)


def test_batches_that_are_copied_ahead_are_those_of_the_files(tmp_path: Path) -> None:
    source = open_source(folder_of_files(tmp_path / "data", uneven=True), image_size=8)
    augment = Augment(recipe("simclr", 8), source.mean, source.std)
    ahead, plain = (Feed(source, augment, 8, 0, torch.device(device), workers=2) for device in ("cuda", "cpu"))
    for epoch in range(2):
        for found, expected in zip(ahead.epoch(epoch), plain.epoch(epoch), strict=True):
            torch.cuda._sleep(10_000_000)  # a step that is still at work when the next batches are copied
            read = [x.clone() for x in (*found.crops, found.labels, found.places)]
            for a, b in zip(read, (*expected.crops, expected.labels, expected.places), strict=True):
                assert torch.equal(a.cpu(), b)


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = quick("byol", tmp_path / "whole", device="cuda", precision="32")
    with stopped_before(5):
        quick("byol", tmp_path / "parted", device="cuda", precision="32")
    parted = quick("byol", tmp_path / "parted", device="cuda", precision="32", resume=True)
    for a, b in zip(rows(whole), rows(parted), strict=True):  # sums on a GPU may be taken in another order
        assert a == pytest.approx(b, rel=1e-3, abs=1e-3)


def test_a_compiled_encoder_trains(tmp_path: Path) -> None:
    run = quick("simclr", tmp_path / "run", device="cuda", compile=True, backbone="resnet18")
    assert all_finite(run)
