"""The benchmark of files: what it opens, what it counts, and what it leaves alone."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from entrec.bench import data as bench
from entrec.bench import data_table
from entrec.bench.data import Benchmark, feed_rate, make_many
from entrec.bench.results import write
from entrec.cli import app
from entrec.data import index, open_source
from entrec.data.files import Files


@pytest.fixture(scope="module")
def measured() -> Benchmark:
    return bench.run(bench.settings(files=120, jpegs=64, workers=(1,)))


def test_every_line_is_measured(measured: Benchmark) -> None:
    for x in (measured.opened, measured.reopened, measured.decoded, measured.cropped[1]):
        assert 0 < x < math.inf


def test_as_many_files_are_made_as_asked_for_and_none_is_held_in_memory(tmp_path: Path) -> None:
    found = open_source(make_many(tmp_path / "many", 250))
    assert isinstance(found.train, Files)
    assert len(found.train) == 250
    assert len(list((tmp_path / "many").iterdir())) == 100


def test_the_second_opening_reads_the_list_and_the_users_own_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(index, "LARGE", 100)
    found: list[bool] = []
    original = index.read

    def noted(root: str) -> list[str] | None:
        names = original(root)
        found.append(names is not None)
        return names

    monkeypatch.setattr(index, "read", noted)
    bench.run(bench.settings(files=120, jpegs=64, workers=(1,)))
    assert found[:2] == [False, True]
    assert os.environ["HOME"] == str(tmp_path)
    assert not (tmp_path / ".cache").exists()


class Rounds:
    """A feed of which each round of batches comes at once, a second after the one before."""

    def __init__(self, batches: int, workers: int, clock: list[float]) -> None:
        self.batches, self.workers, self.clock = batches, workers, clock

    def __len__(self) -> int:
        return self.batches

    def epoch(self, epoch: int) -> Iterator[int]:
        for number in range(self.batches):
            self.clock[0] = 100.0 + number // self.workers
            yield number


@pytest.mark.parametrize(("batches", "workers"), [(46, 16), (32, 16), (64, 2), (7, 3), (5, 1)])
def test_whole_rounds_are_counted(batches: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    feed = cast(Any, Rounds(batches, workers, clock))
    assert feed_rate(feed, workers, 10) == pytest.approx(10.0 * workers)  # a batch of ten by each, every second


def test_one_batch_of_each_process_tells_nothing() -> None:
    assert math.isnan(feed_rate(cast(Any, Rounds(17, 16, [0.0])), 16, 10))


def test_the_page_says_all_of_it(measured: Benchmark, tmp_path: Path) -> None:
    found = data_table.markdown(replace(measured, opened=1.5, reopened=0.25, decoded=987.6, cropped={1: 500.4, 16: 4321.0}))
    for words in ("120 files, the first time | 1.50 s |", "again | 0.25 s |", "988 images/s", "1 process | 500 samples/s |"):
        assert words in found
    assert "16 processes | 4,321 samples/s |" in found
    assert "entrec bench data --files 120 --jpegs 64 --workers 1 --out FILE.json" in found
    write(measured, tmp_path / "data.json")
    assert json.loads((tmp_path / "data.json").read_text())["decoded"] == measured.decoded


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--files", "0"], "files must be at least 1, got 0"),
        (["--jpegs", "63"], "jpegs must be at least 64, which are two batches, got 63"),
        (["--jpegs", "64", "--workers", "2"], "workers must be from 1 to 1"),
        (["--workers", "0"], "workers must be from 1 to 32"),
    ],
)
def test_bad_choices_are_named(options: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["bench", "data", *options])
    assert result.exit_code == 2
    assert says in result.output.replace("\n", " ")
