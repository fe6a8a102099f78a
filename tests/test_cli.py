import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import entrec
from entrec import cli
from entrec.bench import loss
from entrec.bench.results import Benchmark, Row, machine
from entrec.bench.settings import Settings
from entrec.bench.timing import ProductRate
from entrec.cli import edge

runner = CliRunner()


def test_version() -> None:
    result = runner.invoke(cli.app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == f"entrec {entrec.__version__}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ("paper", "bench", "--version")),
        (["--help"], ("paper", "bench", "mutual information")),
        (["paper", "--help"], ("convergence",)),
        (["paper", "convergence", "--help"], ("--out", "--quick", "--seed", "--device", "--overwrite", "bandwidth")),
        (["bench"], ("loss",)),
        (["bench", "--help"], ("loss", "speed and memory")),
        (["bench", "loss", "--help"], ("--what", "-k", "-d", "--kappa", "--device", "--precision", "--dtype", "--repeats")),
        (["bench", "loss", "--help"], ("--dense-limit", "--out", "--overwrite", "ntxent", "ieee", "bfloat16", "entrec[bench]")),
    ],
)
def test_help_names_what_there_is(arguments: list[str], words: tuple[str, ...]) -> None:
    output = runner.invoke(cli.app, arguments, env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert [word for word in words if word not in output] == []


def test_results_are_not_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("mine")
    result = runner.invoke(cli.app, ["paper", "convergence", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "already holds results" in " ".join(result.output.split())
    assert (tmp_path / "results.json").read_text() == "mine"


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    result = runner.invoke(cli.app, ["paper", "convergence", "--quick", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "is a file" in " ".join(result.output.split())


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_refused(device: str, tmp_path: Path) -> None:
    result = runner.invoke(cli.app, ["paper", "convergence", "--device", device, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert f"--device {device} cannot be used" in " ".join(result.output.split())


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(edge, "find_spec", lambda module: None)
    result = runner.invoke(cli.app, ["paper", "convergence", "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "pip install 'entrec[paper]'" in result.output


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    result = runner.invoke(cli.app, ["paper", "convergence", "--seed", "-1", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "--seed" in result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-k", "1"], "k must be at least 2, got 1"),
        (["-d", "1"], "d must be at least 2, got 1"),
        (["--what", "moco"], "what must be one of 'entropy', 'er', 'ntxent', got 'moco'"),
        (["--device", "abacus"], "device must be 'auto', 'cpu' or 'cuda', got 'abacus'"),
        (["--device", "cuda:99"], "--device cuda:99 cannot be used"),
        (["--repeats", "0"], "--repeats"),
    ],
)
def test_a_benchmark_refuses_bad_input(arguments: list[str], complaint: str) -> None:
    result = runner.invoke(cli.app, ["bench", "loss", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


def test_a_benchmark_overwrites_nothing_unasked(tmp_path: Path) -> None:
    file = tmp_path / "loss.json"
    file.write_text("mine")
    for out, complaint in ((file, "already exists"), (tmp_path, "is a folder")):
        result = runner.invoke(cli.app, ["bench", "loss", "--out", str(out)])
        assert result.exit_code == 2
        assert complaint in " ".join(result.output.split())
    assert file.read_text() == "mine"


def test_a_benchmark_prints_its_table_and_writes_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(chosen: Settings, progress: Callable[[str], None]) -> Benchmark:
        progress("measuring")
        rows = [Row(k, d, "ours", ms=1.5, peak_mb=2.5, gradient_error=1e-4, fraction=0.5) for d in chosen.d for k in chosen.k]
        return Benchmark(chosen, machine(torch.device("cpu")), ProductRate(0.1, "float32"), rows, "no entrec[bench]")

    monkeypatch.setattr(loss, "run", run)
    file = tmp_path / "loss.json"
    file.write_text("old")
    arguments = ["--device", "cpu", "-k", "100", "-k", "200", "-d", "8", "--what", "er", "--out", str(file), "--overwrite"]
    result = runner.invoke(cli.app, ["bench", "loss", *arguments], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    for words in ("ERLoss", "100", "200", "1.50", "1.0e-04", "50.0%", "no entrec[bench]", "Written to"):
        assert words in result.output
    document = json.loads(file.read_text())
    assert [(row["k"], row["d"]) for row in document["rows"]] == [(100, 8), (200, 8)]
