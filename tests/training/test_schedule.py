import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from entrec.bench.train import random_source
from entrec.training.assemble import assemble
from entrec.training.schedule import epochs_between, scaled_rate, warmup_cosine
from entrec.training.settings import settings

LENGTHS = [(0, 50), (1, 50), (10, 50), (49, 50), (50, 50), (0, 2), (3, 7)]


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize(("warmup", "total"), LENGTHS)
def test_up_to_one_then_down_to_the_floor(warmup: int, total: int, floor: float) -> None:
    factors = [warmup_cosine(step, warmup, total, floor) for step in range(total)]
    peak = max(warmup - 1, 0)
    assert factors[peak] == 1
    if warmup:
        assert factors[:warmup] == [(step + 1) / warmup for step in range(warmup)]
    assert all(a > b for a, b in pairwise(factors[peak:]))
    if warmup < total:
        assert factors[-1] == pytest.approx(floor, abs=1e-15)


def test_half_way_down_is_half_way() -> None:
    assert warmup_cosine(9 + 45, 10, 100) == pytest.approx(0.5)
    assert warmup_cosine(9 + 30, 10, 100, floor=0.2) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 3)) / 2)


def test_steps_are_small_where_there_are_many() -> None:
    factors = [warmup_cosine(step, 100, 1000) for step in range(1000)]
    assert max(abs(a - b) for a, b in pairwise(factors)) <= 1 / 100 + 1e-12


def test_after_the_end_it_stays_at_the_floor() -> None:
    assert [warmup_cosine(step, 2, 10, 0.25) for step in (9, 10, 100)] == [0.25] * 3
    assert warmup_cosine(1, 1, 1, 0.25) == 0.25


def test_a_run_of_one_step_trains() -> None:
    assert warmup_cosine(0, 0, 1) == warmup_cosine(0, 1, 1) == 1


def test_the_cosine_is_torchs() -> None:
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.1)
    for step in range(41):
        assert warmup_cosine(step, 0, 41, floor=0.1) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_resuming_shifts_nothing() -> None:
    def scheduler(start: int) -> torch.optim.lr_scheduler.LambdaLR:
        optimizer = torch.optim.SGD([{"params": nn.Linear(1, 1).parameters(), "initial_lr": 1.0}], lr=1.0)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, 3, 20), last_epoch=start - 1)

    for start in range(20):
        assert scheduler(start).get_last_lr()[0] == warmup_cosine(start, 3, 20)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-1, 0, 10), "step must be at least 0, got -1"),
        ((0, -1, 10), "warmup_steps must be at least 0, got -1"),
        ((0, 0, 0), "total_steps must be at least 1, got 0"),
        ((0, 11, 10), "warmup_steps must be at most total_steps, got 11 and 10"),
        ((0, 1, 10, 1.5), r"floor must be from 0 to 1, got 1\.5"),
    ],
)
def test_steps_out_of_range(arguments: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        warmup_cosine(*arguments)


def test_the_rate_grows_with_the_batch() -> None:
    assert scaled_rate(0.3, 256) == 0.3
    assert scaled_rate(0.3, 4096) == pytest.approx(4.8)  # SimCLR, Section 2.2
    assert scaled_rate(0.2, 64) == pytest.approx(0.05)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        scaled_rate(0.3, 0)
    with pytest.raises(ValueError, match="base_rate must be at least 0 and finite, got -1"):
        scaled_rate(-1, 256)


@pytest.mark.parametrize(
    ("epochs", "images", "evaluation"), [(100, 50_000, 24_096), (800, 1_281_167, 24_096), (200, 1438, 2309)]
)
def test_evaluations_take_two_percent_or_are_ten_in_a_run(epochs: int, images: int, evaluation: int) -> None:
    every = epochs_between(epochs, images, evaluation)
    cost = evaluation / (6 * images * every)
    assert cost <= 0.02 or epochs // every == 10
    assert every == 1 or evaluation / (6 * images * (every - 1)) > 0.02  # and not more seldom than that takes


def test_short_runs_are_evaluated_after_every_epoch() -> None:
    assert [epochs_between(epochs, 4096, 6656) for epochs in (1, 7, 19, 20, 30)] == [1, 1, 1, 2, 3]


def test_an_evaluation_on_a_gpu_waits_for_its_launches_too() -> None:
    # 8,192 images in batches of 64, as `entrec bench lens` measured on an H200: a look of 53.6 ms, steps of 5.86 ms.
    asked = {"device": "cuda", "backbone": "tiny", "epochs": 100, "batch_size": 64}
    every = assemble(settings("simclr", asked), random_source(8192, 32)).settings.evaluate_every
    assert every is not None
    assert 53.6 / (every * 128 * 5.86) < 0.02
    on_a_cpu = assemble(settings("simclr", {**asked, "device": "cpu"}), random_source(8192, 32)).settings.evaluate_every
    assert on_a_cpu == epochs_between(100, 8192, 2 * 512)
