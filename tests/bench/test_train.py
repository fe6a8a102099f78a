"""`entrec bench train`: what it measures and how it says so; how fast anything is stays out of the tests."""

import io
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from entrec.bench import parts, train_table
from entrec.bench import train as bench
from entrec.bench.bare import Call, bare_rate
from entrec.bench.parts import PARTS
from entrec.bench.photos import make_photos
from entrec.bench.results import write
from entrec.bench.timing import Milliseconds
from entrec.bench.train_rows import Benchmark, Row, Settings
from entrec.bench.trained import trained, unwatched
from entrec.branches.backbones import Backbone
from entrec.cli import app
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.loop import Loop
from entrec.training.run import Run
from entrec.training.settings import settings as run_settings
from entrec.training.train import train
from tests.training.tiny import source

QUICK: dict[str, Any] = {"batches": (16,), "image_size": 16, "steps": 10, "device": "cpu", "backbone": "tiny"}


def loop_of(method: str, **given: Any) -> Loop:
    wanted = run_settings(method, {"batch_size": 16, "device": "cpu", "epochs": 1, **given})
    return Loop(fabric_for(wanted), assemble(wanted, source()), Run(Path("unused")))


@pytest.fixture(scope="module")
def measured() -> Benchmark:
    return bench.run(bench.settings("byol", er=True, **QUICK))


def test_training_the_encoder_and_every_part_are_measured(measured: Benchmark) -> None:
    (row,) = measured.rows
    assert row.batch == 16
    assert row.ours > 0
    assert row.unwatched is None
    assert row.watching == pytest.approx((row.parts["probe"] + row.parts["logging"]) * row.ours / 16 / 1e3)
    assert row.start[0] > 0
    assert row.start[1] is None
    assert 0 < row.saving[0] < row.saving[1]
    assert not row.replayed
    assert row.bare.keys() == {"eager"}
    assert row.parts.keys() == set(PARTS)
    assert all(ms >= 0 for ms in row.parts.values())
    for part in ("views", "forward", "loss", "backward", "optimiser", "memory", "probe", "logging"):
        assert row.parts[part] > 0, part
    assert measured.complete["er"]
    assert measured.complete["backbone"] == "tiny"


def test_ratio_and_idle_follow_from_the_rates() -> None:
    parts = {"views": 300.0, "forward": 1200.0}
    row = Row(100, 50.0, 62.5, (3.0, 2.0), (1.0, 2.0), {"eager": 80.0}, parts, None)  # steps of two seconds
    assert row.ratio("eager") == 0.625
    assert row.watching == pytest.approx(0.2)  # of two seconds 1.6 would be left
    assert row.idle == 500.0


def test_a_ratio_of_turns_is_their_median_and_not_that_of_the_rates() -> None:
    row = Row(100, 1.0, None, (3.0, None), (1.0, 2.0), {"eager": 2.0}, {}, None).in_turns(
        ((50.0, 100.0), (60.0, 80.0), (80.0, 110.0))
    )
    assert (row.ours, row.bare) == (60.0, {"eager": 100.0})
    assert row.ratio("eager") == pytest.approx(80 / 110)  # of 0.5, 0.75 and 0.73


def test_the_encoder_is_measured_around_every_run_on_a_cpu(measured: Benchmark) -> None:
    (row,) = measured.rows
    assert len(row.turns) == 5
    assert min(row.ratios) <= (row.ratio("eager") or 0.0) <= max(row.ratios)
    (note,) = (note for note in train_table.footnotes(measured) if note.startswith("ratio"))
    assert f"the median of 5 turns, each a run and the encoder before and after it ({min(row.ratios):.2f} to" in note


def test_what_watching_takes_is_measured_against_a_run_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    original = train

    def noted(method: str, **more: Any) -> Run:
        given.append((more["log_every"], len(more["data"].classes)))
        return original(method, **more)

    monkeypatch.setattr("entrec.bench.trained.train", noted)
    chosen = run_settings("byol", {"batch_size": 16, "device": "cpu", "epochs": 1, "scores": False, "backbone": "tiny"})
    trained(chosen, source(), torch.device("cpu"))
    assert unwatched(chosen, source(), torch.device("cpu")).rate > 0
    (usual, classes), (seldom, none) = given
    assert (usual, none) == (10, 0)
    assert classes > 0
    assert seldom > 1000


def test_stretches_of_a_part_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 3.5, 7.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    marks = parts._Marks(on_gpu=False)
    for part in ("", "views", "branches", "forward", "branches"):
        marks.mark(part)
    assert marks.milliseconds() == {"views": 1000.0, "branches": 6000.0, "forward": 500.0}


@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_is_left_in_the_loop_that_was_looked_at(compiled: bool) -> None:
    loop = loop_of("byol")
    if compiled:
        loop.parts.backbone.module._compiled_call_impl = loop.parts.backbone.module._call_impl
    calls = [module._compiled_call_impl for module in loop.parts.method.modules()]
    before = loop.update.mark
    found = parts.step_parts(loop, 2).parts
    assert found["forward"] > found["loss"] > 0
    assert loop.update.mark is before
    assert [module._compiled_call_impl for module in loop.parts.method.modules()] == calls
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in loop.parts.method.children())


@pytest.mark.parametrize(
    ("method", "student", "teacher"),
    [
        ("simclr", [32], []),
        ("cmc", [32], []),
        ("ir", [16], []),
        ("moco", [16], [16]),
        ("deepcluster", [32], []),
        ("swav", [32], []),
        ("byol", [16, 16], [16, 16]),
        ("dino", [32], [32]),
    ],
)
def test_the_encoder_alone_is_called_as_in_a_step(method: str, student: list[int], teacher: list[int]) -> None:
    crops = {"small_crops": 0} if method in ("swav", "dino") else {}
    few = {"clusters": 5} if method == "deepcluster" else {}
    loop = loop_of(method, **crops, **few)
    calls = parts.encoder_calls(loop)
    assert [call.shape[0] for call in calls if call.learns] == student  # rows of each call: views together, or one by one
    assert [call.shape[0] for call in calls if not call.learns] == teacher
    assert not any(module._forward_pre_hooks for module in loop.parts.method.modules())


def test_the_bare_step_makes_those_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((len(x), torch.is_grad_enabled()))
            return self.weight * x.mean(dim=(1, 2, 3))

    def a_millisecond(step: Callable[[], object], device: torch.device, repeats: int) -> Milliseconds:
        seen.clear()
        step()
        return Milliseconds(1.0, None)

    monkeypatch.setattr("entrec.bench.bare.build_backbone", lambda *_: Backbone(Watched(), 1, "entrec", False, ()))
    monkeypatch.setattr("entrec.bench.bare.milliseconds", a_millisecond)
    calls = [Call((6, 3, 8, 8), True), Call((6, 3, 8, 8), False), Call((12, 3, 4, 4), True)]
    rate = bare_rate("x", calls, 6, way="eager", device=torch.device("cpu"), bf16=False, repeats=1)
    assert rate == 6000.0  # six samples in a millisecond
    assert sorted(seen) == [(6, False), (6, True), (12, True)]


def test_the_command_it_names_asks_for_the_same(measured: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []

    def noted(chosen: Settings, progress: Any) -> Benchmark:
        asked.append(chosen)
        return measured

    monkeypatch.setattr(bench, "run", noted)
    command = shlex.split(train_table.command(measured))
    assert command[:3] == ["entrec", "bench", "train"]
    result = CliRunner().invoke(app, [*command[1:-2], "--device", "cpu"])
    assert result.exit_code == 0, result.output
    (again,) = asked
    assert (again.batches, again.steps, again.image_size) == (measured.settings.batches, 10, 16)
    assert {key: again.run[key] for key in ("method", "er", "backbone")} == {"method": "byol", "er": True, "backbone": "tiny"}


def test_the_command_names_data_as_they_were_given(measured: Benchmark) -> None:
    chosen = replace(measured.settings, image_size=None, run={**measured.settings.run, "data": "my/images"})
    assert "--data my/images" in train_table.command(replace(measured, settings=chosen))


def test_a_precision_that_was_asked_for_is_used_and_named(measured: Benchmark) -> None:
    found = bench.run(bench.settings("simclr", precision="bf16", **QUICK))
    assert found.complete["precision"] == "bf16"
    assert "--precision bf16" in train_table.command(found)
    assert "views of 16 pixels, bf16\n" in train_table.title(found)
    assert "precision" not in train_table.command(measured)
    assert "bf16" not in train_table.title(measured)


def test_tables_fit_eighty_columns_also_on_a_gpu(measured: Benchmark) -> None:
    ways: Any = {way: 123456.7 for way in ("eager", "captured", "compiled", "compiled and captured")}
    row = Row(1024, 98765.4, 99999.9, (59.4, 12.3), (123.456, 123456.7), ways, dict.fromkeys(PARTS, 123.456), 123456.7)
    console = Console(width=80, record=True, file=io.StringIO())
    for shown in (measured, replace(measured, rows=[row] * 3, limit="compiled and captured")):
        console.print(train_table.rates(shown), train_table.parts(shown))
    text = console.export_text()
    assert "98,765" in text
    assert "0.80" in text
    assert "…" not in text


def test_files_are_of_imagenets_size(tmp_path: Path) -> None:
    files = sorted(make_photos(tmp_path, 40).rglob("*.jpg"))
    assert len(files) == 40
    assert {Image.open(path).size for path in files} == {(500, 375)}
    assert 100_000 < fmean(path.stat().st_size for path in files) < 120_000
    assert len({path.read_bytes() for path in files}) == 32


def test_training_on_files_is_held_against_decoding_too() -> None:
    chosen = bench.settings("byol", jpegs=64, workers=1, **QUICK)
    found = bench.run(chosen)
    (row,) = found.rows
    assert row.decoded is not None
    assert min(row.decoded, row.ours) > 0  # a run of a dozen batches may live on what was loaded ahead
    assert row.workers == 1
    assert found.complete["image_size"] == 16
    assert "--image-size 16 --jpegs 64 --workers 1" in train_table.command(found)
    (note,) = (note for note in train_table.footnotes(found) if "decoding" in note)
    assert f"{row.decoded:,.0f} samples per second" in note


def test_everything_is_written(measured: Benchmark, tmp_path: Path) -> None:
    write(measured, tmp_path / "train.json")
    found = json.loads((tmp_path / "train.json").read_text())
    assert found["rows"][0]["parts"] == measured.rows[0].parts
    assert found["complete"]["batch_size"] == 16
    page = train_table.markdown(measured)
    assert "| batch | training |" in page
    assert train_table.command(measured) in page


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--method", "biol"], "did you mean 'byol'"),
        (["--batch-size", "1"], "at least 2 samples, got 1"),
        (["--precision", "fp8"], "precision must be one of 32, bf16"),
        (["--backbone", "resnet19"], "there is no backbone 'resnet19'"),
        (["--data", "nowhere"], "nowhere"),
        (["--data", "digits", "--jpegs", "8"], "exclude each other"),
    ],
)
def test_bad_choices_are_named(options: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["bench", "train", "--device", "cpu", "--steps", "10", *options])
    assert result.exit_code == 2
    assert says in result.output.replace("\n", " ")


def test_a_file_for_tables_is_no_place_for_the_numbers_and_neither_is_replaced_unasked(tmp_path: Path) -> None:
    def called(*options: str) -> str:
        result = CliRunner().invoke(app, ["bench", "train", "--device", "cpu", "--steps", "10", *options])
        assert result.exit_code == 2
        return " ".join(result.output.split())

    assert "--out must be a JSON file" in called("--out", str(tmp_path / "x.md"))
    (tmp_path / "x.md").write_text("mine")
    assert "x.md already exists" in called("--out", str(tmp_path / "x.json"))
    assert (tmp_path / "x.md").read_text() == "mine"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu() -> None:
    found = bench.run(bench.settings("byol", er=True, **{**QUICK, "device": "cuda", "backbone": "resnet18", "image_size": 32}))
    (row,) = found.rows
    assert row.bare.keys() == {"eager", "captured", "compiled", "compiled and captured"}
    assert row.peak_mb is not None
    assert row.unwatched is not None
    assert row.replayed
    assert all(row.parts[part] > 0 for part in PARTS)
    launched = parts.step_parts(loop_of("byol", device="cuda", capture=False), 2)
    assert not launched.replayed
    assert all(launched.parts[part] > 0 for part in PARTS)
