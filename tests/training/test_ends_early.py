"""Runs that the lens ends, or chooses the encoder of, and that are killed meanwhile: they end as those that were not."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from entrec.training import train as train_module
from entrec.training.held_out import Look
from entrec.training.looks import Looks
from entrec.training.loop import Loop
from entrec.training.run import Run
from tests.training.test_held_out import bounded, constant
from tests.training.tiny import Stopped, different, quick, rows

Given = dict[str, Any]
PATIENT: Given = {"epochs": 9, "patience": 2, "keep": "best-er", "evaluate_every": 1}
BOUNDS = (1.0, 2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3)  # the run ends after four epochs, and the second's encoder is kept
pytestmark = pytest.mark.filterwarnings("ignore:stopped after")


def sees(monkeypatch: pytest.MonkeyPatch, looks: Sequence[Look]) -> None:
    """Of weights of so many epochs the lens sees this, whenever it looks."""
    monkeypatch.setattr(Looks, "_seen", lambda self, epochs: looks[epochs - 1])


def told(run: Run) -> Given:
    return {key: value for key, value in run.summary.items() if key not in ("wall_seconds", "samples_per_second")}


def killed(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, when: Callable[..., bool], run: Callable[[], Run]) -> None:
    """The run, which is killed where such a function is called."""
    original = getattr(where, name)

    def dying(*args: Any, **given: Any) -> Any:
        if when(*args):
            raise Stopped
        return original(*args, **given)

    with monkeypatch.context() as patch:
        patch.setattr(where, name, dying)
        with pytest.raises(Stopped):
            run()


@pytest.mark.parametrize(
    ("given", "looks", "epochs"),
    [
        (PATIENT, [bounded(x) for x in BOUNDS], 4),
        ({"epochs": 9, "on_collapse": "stop", "evaluate_every": 1}, [bounded(1.0), *9 * [constant("byol")]], 3),
    ],
    ids=["patience", "collapse"],
)
def test_a_run_that_has_ended_early_does_not_go_on(
    given: Given, looks: Sequence[Look], epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sees(monkeypatch, looks)
    whole = quick("byol", tmp_path / "whole", **given)
    assert whole.summary["epochs"] == epochs
    before, summary = rows(whole), told(whole)
    with pytest.warns(UserWarning, match=f"stopped after {epochs} epochs"):
        again = quick("byol", tmp_path / "whole", resume=True, **given)
    assert (rows(again), told(again)) == (before, summary)

    out = tmp_path / "parted"
    killed(monkeypatch, train_module, "finish", lambda *_: True, lambda: quick("byol", out, **given))
    assert not (out / "summary.json").exists()
    parted = quick("byol", out, resume=True, **given)
    assert different(whole, parted) == []
    assert rows(parted) == before
    assert told(parted) == summary


def test_one_that_is_to_wait_longer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sees(monkeypatch, [bounded(x) for x in BOUNDS])
    quick("byol", tmp_path / "run", **PATIENT)
    run = quick("byol", tmp_path / "run", resume=True, **{**PATIENT, "patience": 4})
    assert (run.summary["epochs"], run.summary["kept_epochs"]) == (6, 2)


@pytest.mark.parametrize("copy", [1, 2])
def test_the_best_encoder_is_not_lost_between_its_checkpoint_and_the_copy_of_it(
    copy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sees(monkeypatch, [bounded(x) for x in BOUNDS])
    whole = quick("byol", tmp_path / "whole", **PATIENT)
    calls: list[Any] = []

    def is_that_copy(*paths: Any) -> bool:
        calls.append(paths)
        return len(calls) == copy

    killed(monkeypatch, shutil, "copyfile", is_that_copy, lambda: quick("byol", tmp_path / "parted", **PATIENT))
    parted = quick("byol", tmp_path / "parted", resume=True, **PATIENT)
    assert parted.summary["kept_epochs"] == 2
    assert different(whole, parted) == []
    assert different(whole, parted, best=True) == []
    assert told(whole) == told(parted)


def test_an_older_checkpoint_is_not_taken_for_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sees(monkeypatch, [bounded(x) for x in BOUNDS])
    given = {**PATIENT, "checkpoint_every": 1}
    whole = quick("byol", tmp_path / "whole", **given)
    killed(monkeypatch, Loop, "save", lambda loop: loop.place.step == 8, lambda: quick("byol", tmp_path / "parted", **given))
    parted = quick("byol", tmp_path / "parted", resume=True, **given)
    assert told(whole) == told(parted)
    assert different(whole, parted, best=True) == []


def test_a_run_ends_between_epochs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sees(monkeypatch, [bounded(x) for x in BOUNDS])
    given = {**PATIENT, "patience": 4, "checkpoint_every": 1}
    killed(monkeypatch, Loop, "save", lambda loop: loop.place.step == 11, lambda: quick("byol", tmp_path / "run", **given))
    run = quick("byol", tmp_path / "run", resume=True, **{**given, "patience": 1})  # the third look is stale for that
    assert run.summary["epochs"] == 4  # the one that it was in is finished
