"""`entrec bench identify`: what it measures and how it says so; how fast anything is stays out of the tests."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from entrec.bench import identify, identify_table
from entrec.bench.identify import Benchmark
from entrec.cli import app
from entrec.identifiability import Encoder, Sphere

TINY = ["--dim", "2", "--batch", "16", "--steps", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def measured() -> Benchmark:
    return identify.run(identify.settings(dim=2, batch=16, steps=2, device="cpu"))


def test_every_model_and_objective_is_measured(measured: Benchmark) -> None:
    found = {(row.model, row.objective) for row in measured.rows}
    assert found == {(m, o) for m in ("vmf:1", "normal", "laplace", "gennorm:3") for o in ("infonce", "er")}
    for row in measured.rows:
        assert row.precision == "32"
        assert row.steps_per_second > 0
        assert row.graph == "-"


def test_the_encoders_operations_are_counted() -> None:
    """The issue's number: 1500 steps a second of the paper's protocol are 94 TFLOP/s."""
    assert 1500 * identify.encoder_operations(Encoder(10, Sphere(10)), 2 * 6144) / 1e12 == pytest.approx(94, abs=0.5)


def test_the_table_has_every_row_and_names_the_precision(measured: Benchmark) -> None:
    table = identify_table.table(measured)
    assert table.row_count == 8
    text = identify_table.markdown(measured)
    assert "steps/s" in text
    assert "- 32: float32 throughout." in text
    assert "2 latents, batch 16" in text
    row = replace(measured.rows[0], precision="bf16", graph="no: it waits for the device (a.py:1)", steps_per_second=1500.0)
    text = identify_table.markdown(replace(measured, rows=[row]))
    assert "| bf16 | 1,500.0 | 0.67 |" in text
    assert "it waits for the device" in text
    assert "- bf16: products" in text


def test_its_command_measures_the_same_again(measured: Benchmark) -> None:
    words = shlex.split(identify_table.command(measured).replace(" --out FILE.json", ""))
    assert words[:3] == ["entrec", "bench", "identify"]
    given: dict[str, list[str]] = {}
    for name, value in zip(words[3::2], words[4::2], strict=True):
        given.setdefault(name, []).append(value)
    again = identify.settings(
        given["--objective"], given["--model"], given["--precision"],
        int(given["--dim"][0]), int(given["--batch"][0]), int(given["--steps"][0]), given["--device"][0],
    )  # fmt: skip
    assert again == measured.settings


def test_the_command_writes_everything_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    call = ["bench", "identify", *TINY, "--model", "laplace", "--objective", "er", "--out", str(tmp_path / "a.json")]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert "laplace" in result.output
    kept = json.loads((tmp_path / "a.json").read_text())
    assert [row["model"] for row in kept["rows"]] == ["laplace"]
    assert kept["settings"]["settings"][0]["batch"] == 16
    assert (tmp_path / "a.md").read_text().startswith("# Identifiability experiments")
    assert CliRunner().invoke(app, call).exit_code == 2
    assert CliRunner().invoke(app, [*call, "--overwrite"]).exit_code == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["--model", "normale"], "did you mean 'normal'"),
        (["--objective", "infonse"], "did you mean 'infonce'"),
        (["--precision", "bf16"], "precision bf16 needs a GPU"),
        (["--device", "tpu"], "device must be"),
        (["--batch", "3"], "batch must be at least 4"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(call: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(identify, "_measured")
    result = CliRunner().invoke(app, ["bench", "identify", *TINY, *call])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_every_precision_is_measured_as_a_graph() -> None:
    found = identify.run(identify.settings(dim=4, batch=64, steps=4, device="cuda"))
    assert {row.precision for row in found.rows} == {"32", "tf32", "fp16", "bf16"}
    assert {row.graph for row in found.rows} == {"yes"}
