import copy
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from entrec.methods import IR, METHODS, ir
from entrec.training import Pretraining
from entrec.training.schedule import warmup_cosine
from entrec.views import Augment, recipe


class Watching(pl.Callback):
    """The student's parameters after each batch, the rates, and how often the optimiser has stepped."""

    def __init__(self) -> None:
        self.students: list[list[torch.Tensor]] = []
        self.rates: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        branch = nn.Sequential(pl_module.method.encoder, pl_module.method.projector)
        self.students.append([p.detach().clone() for p in branch.parameters()])
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def module(name: str, **options: Any) -> Pretraining:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    entry = METHODS[name]
    method = entry.build(encoder, 8, entry.options(hidden=8, dim=8, **options), True, False)
    return Pretraining(method, Augment(recipe("simclr", 8), (0.5,) * 3, (0.25,) * 3), batch_size=16, rate=3.0)


def fit(module: Pretraining, *callbacks: pl.Callback, accumulate: int = 1) -> pl.Trainer:
    images = torch.randint(0, 256, (32, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=accumulate,
        callbacks=list(callbacks),
    )
    trainer.fit(module, DataLoader(TensorDataset(images, torch.arange(32)), batch_size=8))
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_the_teacher_follows_steps_of_the_optimiser_and_not_accumulated_batches() -> None:
    mine = module("byol", ema=0.6)
    teacher = [p.clone() for p in mine.method.teacher.parameters()]
    watching = Watching()
    trainer = fit(mine, watching, accumulate=2)
    assert trainer.global_step == 4
    for student in watching.students[1::2]:
        teacher = [0.6 * t + 0.4 * s for t, s in zip(teacher, student, strict=True)]
    for found, expected in zip(mine.method.teacher.parameters(), teacher, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore")
def test_the_rate_is_that_of_the_schedule_and_the_terms_are_logged() -> None:
    mine, watching = module("simclr"), Watching()
    before = copy.deepcopy(mine.method.state_dict())
    trainer = fit(mine, watching)
    assert watching.rates == pytest.approx([3.0 * 16 / 256 * warmup_cosine(step, 1, 8) for step in range(8)])
    assert {"loss", "entropy", "reconstruction"} <= set(trainer.callback_metrics)
    moved = [not torch.equal(x, before[key]) for key, x in mine.method.named_parameters()]
    assert all(moved)


@pytest.mark.filterwarnings("ignore")
def test_accumulated_batches_all_reach_the_bank() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    method = IR(encoder, 8, ir.Options(hidden=8, dim=8, momentum=0.0), True, False, images=32)
    before = method.bank.entries.clone()
    fit(Pretraining(method, Augment(recipe("simclr", 8), (0.5,) * 3, (0.25,) * 3), batch_size=16), accumulate=2)
    assert bool((method.bank.entries != before).any(dim=1).all())


@pytest.mark.parametrize("batch", ["images", "images and labels as floats"])
def test_a_method_that_keeps_something_for_each_image_wants_their_places(batch: str) -> None:
    method = IR(nn.Flatten(), 192, ir.Options(hidden=8, dim=8), False, False, images=32)
    mine = Pretraining(method, Augment(recipe("simclr", 8), (0.5,) * 3, (0.25,) * 3))
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    given = images if batch == "images" else (images, torch.zeros(4))
    with pytest.raises(
        ValueError, match=r"IR keeps something for each image: .* places in the data set, int64 of shape \(4,\)"
    ):
        mine.training_step(given, 0)
