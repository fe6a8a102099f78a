"""The callback calls nothing a collapse before anything can have been learnt, by the rule that `entrec train` has."""

import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor

from entrec import LensCallback
from entrec.lens import diagnose, look
from entrec.lens.verdict import EARLY, unless_early
from tests.lens.test_callback import QUIET, Small, data, fit, names

pytestmark = pytest.mark.filterwarnings("ignore:::(lightning|torch)")


def one_point(module: Any, batch: Any) -> Tensor:
    return torch.ones(len(batch[0]), 4)


def test_one_point_is_early_before_sixty_steps_and_a_collapse_from_then_on() -> None:
    lens = LensCallback(one_point, every=20, on_collapse="stop")
    with pytest.warns(UserWarning, match=f"Lens at step {EARLY}: Constant collapse") as said:
        trainer = fit(Small(), lens, steps=200)
    assert lens.history[-1][0] == trainer.global_step == 80  # two looks that count, the first of them at 60
    assert names(lens) == ["early", "early", "collapsed", "collapsed"]
    assert len([x for x in said if "Lens at" in str(x.message)]) == 1


@pytest.mark.parametrize("every", [1, 7])
def test_a_short_run_neither_warns_nor_stops(every: int) -> None:
    lens = LensCallback(one_point, every=every, on_collapse="stop", held_out=torch.randn(300, 8)[None].unbind())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Lens at step")
        trainer = fit(Small(), lens, steps=EARLY - 1)
    assert trainer.global_step == EARLY - 1
    assert set(names(lens)) == {"early"}


def test_the_verdict_is_that_of_the_one_rule() -> None:
    lens = LensCallback(one_point, every=10)
    fit(Small(), lens, steps=10)
    assert lens.verdict == unless_early(diagnose(look(torch.ones(64, 4))), steps=10)


def test_accumulated_batches_are_counted_as_the_steps_that_they_make() -> None:
    lens = LensCallback(one_point, every=30)
    fit(Small(), lens, steps=30, accumulate_grad_batches=3)
    assert names(lens) == ["early"]


def test_once_it_can_be_told_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    lens = LensCallback(lambda m, batch: torch.ones(64, 4) if m.global_step < 15 else torch.randn(64, 4), every=10)
    with caplog.at_level("INFO"):
        fit(Small(), lens, steps=40)
    said = [line.split(":")[:2] for line in caplog.messages if line.startswith("Lens at")]
    assert said == [["Lens at step 10", " Too early to tell"], ["Lens at step 20", " Healthy"]]


def test_steps_before_a_checkpoint_count(tmp_path: Path) -> None:
    trainer = fit(Small(), LensCallback(one_point, every=10), steps=50)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = LensCallback(one_point, every=10)
    trainer = pl.Trainer(max_steps=70, logger=False, callbacks=again, **QUIET)
    with pytest.warns(UserWarning, match=f"Lens at step {EARLY}: Constant collapse"):
        trainer.fit(Small(), data(), ckpt_path=str(tmp_path / "last.ckpt"))
    assert names(again) == ["early"] * 5 + ["collapsed"] * 2
