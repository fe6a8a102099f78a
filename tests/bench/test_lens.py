"""`entrec bench lens`: what it measures and how it says so; how fast anything is stays out of the tests."""

import json
import logging
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from entrec.bench import lens as bench
from entrec.bench import lens_table
from entrec.bench.lens import Benchmark
from entrec.cli import app

TINY = {"backbone": "tiny", "er": True}


@pytest.fixture(scope="module")
def measured() -> Benchmark:
    return bench.run(bench.settings("simclr", (8,), 8, "cpu", steps=12, every=3, held_out=16, **TINY))


def test_every_way_to_look_is_measured(measured: Benchmark) -> None:
    assert [row.way for row in measured.rows] == ["LensCallback", "LensCallback, held-out data", "entrec train"]
    for row in measured.rows:
        assert 0 < row.share < 1
        assert min(row.look_ms, row.step_ms) > 0
    # Twelve steps, a look after every third; held-out data are judged at the end too.
    assert [row.looks for row in measured.rows] == [4, 5, 1]


def test_lightning_speaks_afterwards_as_before() -> None:
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    try:
        logger.setLevel(logging.INFO)
        bench.run(bench.settings("simclr", (8,), 8, "cpu", steps=4, every=3, held_out=16, **TINY))
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(level)


def test_shares_are_of_the_time_that_was_counted() -> None:
    class Clock(bench._Stopwatch):
        time = 0.0

        def now(self) -> float:
            return self.time

    watch = Clock(torch.device("cpu"))
    for step in range(1, 14):
        watch.time += 1.0
        watch.stepped()
        if step % 5 == 0:
            watch.look(lambda: setattr(watch, "time", watch.time + 0.5))
    row = watch.row(8, "LensCallback")
    assert (row.looks, row.look_ms, row.step_ms) == (2, 500.0, 1000.0)  # three steps are not counted
    assert row.share == pytest.approx(1 / 11)


def test_the_page_has_the_command_that_makes_it_again(measured: Benchmark) -> None:
    text = lens_table.markdown(measured)
    assert "entrec bench lens --method simclr --er --backbone tiny --image-size 8 --batch-size 8" in text
    assert "--steps 12 --every 3 --held-out 16" in text
    assert text.count("| 8 |") == 3


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    words = [
        "--backbone",
        "tiny",
        "--image-size",
        "8",
        "--batch-size",
        "8",
        "--steps",
        "10",
        "--every",
        "5",
        "--held-out",
        "16",
    ]
    result = CliRunner().invoke(app, ["bench", "lens", *words, "--device", "cpu", "--out", str(tmp_path / "x.json")])
    assert result.exit_code == 0, result.output
    assert len(json.loads((tmp_path / "x.json").read_text())["rows"]) == 3
    assert (tmp_path / "x.md").read_text().startswith("# What looking costs: simclr, tiny")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 10, "every": 20}, "steps must be at least 20, got 10"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"held_out": 1}, "held_out must be at least 2, got 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench.settings("simclr", (8,), 8, "cpu", **given)
