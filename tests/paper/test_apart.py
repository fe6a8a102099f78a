"""Runs over several devices, each a command of its own."""

from pathlib import Path
from typing import Any

import pytest

from entrec.paper.runner import Cell, Data, Pool, apart, make, outcome
from entrec.training.run import Run, write_summary

CELLS = [Cell(f"simclr-seed{seed}", "simclr", {"seed": seed}) for seed in range(2)]


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(tmp_path / "runs", Data("shapes", images=64), {"epochs": 2, "batch_size": 32, "device": "cpu"}, keep=False)


@pytest.mark.slow
def test_a_run_over_two_devices_is_a_command_of_its_own(pool: Pool) -> None:
    pool = pool._replace(data=Data("digits", backbone="tiny"), given={**pool.given, "epochs": 1, "devices": 2})
    assert make(CELLS[:1], pool).done == [CELLS[0].name]
    config = Run(pool.folder / CELLS[0].name).config
    assert (config["devices"], config["batch_size"], config["data"]) == (2, 32, "digits")
    assert {path.name for path in pool.folder.iterdir()} == {CELLS[0].name}


def test_a_run_over_several_devices_says_why_it_failed(pool: Pool) -> None:
    make(CELLS[:1], pool._replace(given={**pool.given, "devices": 2}))
    assert "take one device" in outcome(pool.folder / CELLS[0].name).reason
    odd = pool._replace(data=Data("digits"), given={"devices": 2, "device": "cpu", "batch_size": 33})
    make(CELLS[1:2], odd)
    reason = outcome(pool.folder / CELLS[1].name).reason
    assert reason == "RuntimeError: batch_size must be a multiple of the 2 devices, got 33"
    assert list(pool.folder.glob(".*")) == []


@pytest.mark.parametrize(("verdict", "diverged"), [("diverging", True), (None, False)])
def test_a_run_over_several_devices_that_diverged_is_known_as_such(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, verdict: str | None, diverged: bool
) -> None:
    def ended(command: Any, folder: Path) -> tuple[int, str]:
        if verdict is not None:
            write_summary(Run(pool.folder / CELLS[0].name), {"verdict": verdict})
        return 2, "much else\nerror: NaN at step 3\n"

    monkeypatch.setattr(apart, "_ended", ended)
    make(CELLS[:1], pool._replace(data=Data("digits"), given={"devices": 2, "device": "cpu"}))
    reason = "NaN at step 3" if diverged else "RuntimeError: NaN at step 3"
    assert outcome(pool.folder / CELLS[0].name) == ("failed", reason, diverged)
