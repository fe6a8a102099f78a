"""Before anything can have been learnt nothing is called a failure, and after that a collapse still is one."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import entrec
from entrec.data import Held, Source, open_source
from entrec.lens.verdict import EARLY
from entrec.training.held_out import HeldOut
from tests.training.tiny import quick


def three_hundred_digits() -> Source:
    """As many as make an epoch of one step in batches of 256."""
    source = open_source("digits")
    assert isinstance(source.train, Held)
    return replace(source, train=Held(source.train.images[:300], source.train.labels[:300]))


def one_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldOut, "seen", lambda *_: (torch.ones(40, 8), torch.ones(40, 8), False))


def test_an_epoch_of_one_step_is_no_collapse(tmp_path: Path) -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    run = entrec.train(
        "simclr", data=three_hundred_digits(), out=tmp_path / "run", batch_size=256, epochs=3, on_collapse="stop", warmup=0.0,
        device="cpu", scores=False, console=console,
    )  # fmt: skip
    text = console.export_text()
    assert "ollapse" not in text
    assert "stopped" not in text
    assert "Too early to tell" in text
    assert {x["verdict"] for x in run.summary["verdicts"]} <= {"early", "weak"}
    assert run.summary["epochs"] == 3


def test_a_run_that_stays_at_one_point_is_named_and_stopped_once_it_is_late_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_point(monkeypatch)
    last = EARLY // 3  # epochs of 3 steps; the first look that counts is after these
    console = Console(record=True, width=200, file=io.StringIO())
    given: dict[str, Any] = {"epochs": last + 5, "on_collapse": "stop", "evaluate_every": 1}
    run = quick("byol", tmp_path / "run", **given, scores=False, console=console)
    said = [x["verdict"] for x in run.summary["verdicts"]]
    assert said == ["early"] * (last - 1) + ["collapsed"] * 2
    text = console.export_text()
    assert text.count("lens: Too early to tell") == 1
    assert text.count("lens: Constant collapse") == 1
    assert f"stopped after {last + 1} epochs, as the lens saw a collapse" in text
    assert run.summary["verdict"] == "collapsed"


def test_what_is_no_number_has_failed_however_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = torch.full((40, 8), torch.nan)
    monkeypatch.setattr(HeldOut, "seen", lambda *_: (broken, broken, False))
    with pytest.warns(UserWarning, match="stopped after 2 epochs"):
        run = quick("byol", tmp_path / "run", epochs=4, on_collapse="stop", scores=False)
    assert run.summary["verdict"] == "diverging"


def test_an_early_point_is_not_kept_for_its_bound_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    healthy_and_below_zero = (z, -z, False)
    point = (torch.ones(40, 8), torch.ones(40, 8), False)
    seen = [point, healthy_and_below_zero, healthy_and_below_zero]
    monkeypatch.setattr(HeldOut, "seen", lambda *_: seen.pop(0) if len(seen) > 1 else seen[0])
    monkeypatch.setattr("entrec.lens.verdict._tells", lambda *_: True)
    run = quick("byol", tmp_path / "run", epochs=2, keep="best-er", scores=False)
    assert [x["verdict"] for x in run.summary["verdicts"]] == ["early", "weak"]
    assert run.metrics[-1]["held_out_er_bound"] < 0
    assert run.summary["kept_epochs"] == 2


def test_weights_of_an_early_epoch_that_are_kept_are_judged_as_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_point(monkeypatch)
    run = quick("byol", tmp_path / "run", epochs=EARLY // 3, keep="best-er", evaluate_every=1, scores=False)
    assert run.summary["kept_epochs"] == 1  # the first of equal bounds
    assert run.summary["verdict"] == "early"
    assert run.summary["verdicts"][-1]["verdict"] == "collapsed"
