"""Every verdict of the lens, by a real run on shapes that is healthy, or fails in just that way."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader

import entrec
from entrec import LensCallback
from entrec.data import open_source
from entrec.training import Pretraining
from entrec.training.assemble import assemble
from entrec.training.loop import DivergedError
from entrec.training.settings import settings

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:::(lightning|pytorch_lightning|torch)")]
SHORT: dict[str, Any] = {"data": "shapes", "device": "cpu", "batch_size": 64, "epochs": 2, "scores": False}


@pytest.mark.parametrize(
    ("verdict", "method", "given"),
    [
        ("healthy", "simclr", {}),
        ("healthy", "byol", {"er": True, "ema": 0.8, "epochs": 4}),
        # Sixteen steps: nothing has collapsed, and little is learnt.
        ("weak", "simclr", {"batch_size": 512}),
        # Without a slow teacher and without a predictor, or with one that does not keep up: nothing keeps BYOL from one point.
        ("collapsed", "byol", {"ema": None, "predictor": False}),
        ("collapsed", "byol", {"ema": None, "predictor_rate": 0.01, "epochs": 5}),
        # A reconstruction that outweighs the entropy.
        ("collapsed", "simclr", {"er": True, "weight": 20.0}),
        # Without centring and sharpening every code stays as likely as any other.
        ("uninformative", "dino", {"centring": False, "teacher_temperature": 0.1, "epochs": 4}),
        # Targets that are even, whatever the image.
        ("uninformative", "swav", {"epsilon": 10.0, "epochs": 4}),
        # All that a head can pass on through two units.
        ("low rank", "simclr", {"hidden": 2}),
        # Two views that are the same: told apart so well that 256 images cannot tell how well.
        ("saturated", "simclr", {"recipe": "none", "temperature": 0.05}),
    ],
)
def test_a_run_that_does_just_this(verdict: str, method: str, given: dict[str, Any], tmp_path: Path) -> None:
    run = entrec.train(method, out=tmp_path / "run", **{**SHORT, **given})
    assert run.summary["verdict"] == verdict
    assert {x["verdict"] for x in run.summary["verdicts"][-2:]} == {verdict}


def test_a_run_that_diverges_is_stopped_by_the_trainer_and_named_by_the_callback(tmp_path: Path) -> None:
    wild: dict[str, Any] = {"rate": 1e30, "optimizer": "sgd", "warmup": 0.0}
    with pytest.raises(DivergedError, match="NaN or infinite at step"):
        entrec.train("simclr", out=tmp_path / "run", **SHORT, **wild)
    source = open_source("shapes")
    parts = assemble(settings("simclr", {"batch_size": 64}), source)
    module, lens = Pretraining(parts.method, parts.augment, rate=1e30, warmup=0.0), LensCallback(every=5, on_collapse="stop")
    images: Any = source.train
    trainer = pl.Trainer(
        max_steps=40, accelerator="cpu", callbacks=[lens], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="Diverging"):
        trainer.fit(module, DataLoader(torch.utils.data.Subset(images, range(1024)), 64))
    assert [verdict.name for _, verdict in lens.history[-2:]] == ["diverging"] * 2
    assert trainer.global_step == lens.history[-1][0] < 40
