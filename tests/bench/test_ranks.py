"""`entrec bench ranks`: what it measures and how it says so; how fast anything is stays out of the tests.

What ranks may send each other is in `tests/training/test_messages.py`.
"""

import io
import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from entrec.bench import ranks as bench
from entrec.bench import ranks_table
from entrec.bench.messages import DDP, Message, Work
from entrec.bench.ranks import Benchmark, Row
from entrec.bench.results import write
from entrec.cli import app

pytestmark = pytest.mark.slow  # processes are begun and timed

PARTS = {"forward": 3_000_000, "backward": 6_000_000, "logging": 0}
PAIRS = {"forward": 20_000, "backward": 40_000, "logging": 20_000}
SENT = [
    Message("forward", "all_gather", "pairwise.ranks._gathered", 512, 2048),
    Message("forward", "all_gather", "pairwise.ranks.agree", 6, 48),
    Message("backward", "all_reduce", "pairwise.ranks._summed", 64, 256),
    Message("backward", "all_reduce", DDP, 1000, 4000),
    Message("backward", "all_reduce", DDP, 500, 2000),
    Message("probe", "all_reduce", DDP, 30, 120),
    Message("logging", "all_gather", "pairwise.ranks._gathered", 512, 2048),
]


def row_of(ranks: int, messages: list[Message]) -> Row:
    return Row(ranks, min(2, ranks), 400.0, 25.0, 500.0, 20.0, Work(messages, PARTS, PAIRS, 1500, 30))


@pytest.fixture(scope="module")
def measured() -> Benchmark:
    return bench.run(bench.settings("byol", (2,), 4, 8, 10, er=True, backbone="tiny"))


def test_speed_messages_and_work_are_measured(measured: Benchmark) -> None:
    (row,) = measured.rows
    assert (row.ranks, row.cores) == (2, min(2, os.cpu_count() or 1))
    assert min(row.rate, row.apart_rate, row.cpu_ms, row.apart_cpu_ms) > 0
    assert row.work.reduced == row.work.parameters > 0
    assert row.work.probe_reduced == row.work.probe_parameters > 0
    assert {x.kind for x in row.work.others} == {"all_gather", "all_reduce"}
    assert row.work.flops["forward"] > row.work.pairwise_flops["forward"] > 0
    assert (measured.complete["er"], measured.complete["backbone"]) == (True, "tiny")


def test_what_is_kept_and_what_a_core_does_follow_from_the_rates() -> None:
    row = row_of(4, SENT)
    assert row.per_core == 200.0
    assert row.kept == 0.8


def test_gradients_are_told_from_the_rest() -> None:
    work = row_of(2, SENT).work
    assert (work.reduced, work.probe_reduced) == (1500, 30)
    assert [x.bytes for x in work.others] == [2048, 48, 256, 2048]


def test_a_step_lasts_as_most_of_the_later_half_do() -> None:
    begun = [(float(x), 0.5 * x) for x in (0, 50, 60, 61, 62, 63, 73, 74)]  # one step of the later half waits
    assert bench._of_a_step(begun) == (1.0, 0.5 * 12 / 3)


def test_tables_tell_numbers_and_bytes(measured: Benchmark) -> None:
    page = ranks_table.markdown(replace(measured, rows=[row_of(1, []), row_of(2, SENT)]))
    for line in (
        "| ranks | cores | samples/s | a core | apart | kept | CPU ms | CPU ms apart |",
        "| 2 | 2 | 400 | 200 | 500 | 0.80 | 25.0 | 20.0 |",
        "| loss, forward: all_gather | - | 2: 2,096 |",
        "| loss, backward: all_reduce | - | 1: 256 |",
        "| gradients: all_reduce | - | 2: 6,000 |",
        "| probe gradients: all_reduce | - | 1: 120 |",
        "| a row of metrics.csv: all_gather | - | 1: 2,048 |",
        "| gradients summed | - | 1,500 |",
        "| parameters | 1,500 | 1,500 |",
        "| networks | 9.0 | 9.0 |",
        "| pairs of rows, in the loss | 0.06 | 0.06 |",
        "| pairs of rows, in a row | 0.02 | 0.02 |",
    ):
        assert line in page.splitlines()


def test_tables_fit_eighty_columns(measured: Benchmark) -> None:
    many = [replace(x, elements=12_345_678, bytes=49_382_712) for x in SENT]
    console = Console(width=80, record=True, file=io.StringIO())
    shown = replace(measured, rows=[row_of(ranks, many) for ranks in (1, 2, 4)])
    console.print(ranks_table.rates(shown), ranks_table.messages(shown), ranks_table.work(shown))
    text = console.export_text()
    assert "2: 98,765,424" in text
    assert "…" not in text


def test_the_command_it_names_asks_for_the_same(measured: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bench.Settings] = []

    def noted(chosen: bench.Settings, progress: Any) -> Benchmark:
        asked.append(chosen)
        return measured

    monkeypatch.setattr(bench, "run", noted)
    for er in (True, False):
        complete = {**measured.complete, "er": er}
        command = shlex.split(ranks_table.command(replace(measured, complete=complete)))
        assert command[:3] == ["entrec", "bench", "ranks"]
        result = CliRunner().invoke(app, command[1:-2])
        assert result.exit_code == 0, result.output
        assert asked.pop() == replace(measured.settings, run={**measured.settings.run, "er": er})


def test_everything_is_written(measured: Benchmark, tmp_path: Path) -> None:
    write(measured, tmp_path / "ranks.json")
    found = json.loads((tmp_path / "ranks.json").read_text())
    sent = found["rows"][0]["work"]["messages"]
    assert [Message(**x) for x in sent] == measured.rows[0].work.messages
    assert found["settings"]["batch"] == 4
    assert ranks_table.command(measured) in ranks_table.markdown(measured)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--method", "biol"], "did you mean 'byol'"),
        (["--backbone", "resnet19"], "there is no backbone 'resnet19'"),
        (["--ranks", "0"], "ranks must be at least 1, got 0"),
        (["--out", "."], "must be a file"),
    ],
)
def test_bad_choices_are_named(options: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["bench", "ranks", "--steps", "10", *options])
    assert result.exit_code == 2
    assert says in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ranks": (2, 0)}, "ranks must be at least 1, got 0"),
        ({"batch": 1}, "at least 2 samples, got 1"),
        ({"image_size": 4}, "at least 8 pixels wide, got 4"),
        ({"steps": 9}, "steps must be at least 10, of which the first half is not counted, got 9"),
    ],
)
def test_numbers_out_of_range_are_named(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        bench.settings("byol", **given)


def test_a_run_that_could_not_be_is_refused_before_any_process() -> None:
    with pytest.raises(ValueError, match="clusters must be at most the 40 images of the data set, got 50"):
        bench.run(bench.settings("deepcluster", batch=4, steps=10, clusters=50))
