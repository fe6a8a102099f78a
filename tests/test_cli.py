from pathlib import Path

import pytest
from typer.testing import CliRunner

import entrec
from entrec import cli

runner = CliRunner()


def test_version() -> None:
    result = runner.invoke(cli.app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == f"entrec {entrec.__version__}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ("paper", "--version")),
        (["--help"], ("paper", "mutual information")),
        (["paper", "--help"], ("convergence",)),
        (["paper", "convergence", "--help"], ("--out", "--quick", "--seed", "--device", "--overwrite", "bandwidth")),
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
    monkeypatch.setattr(cli, "find_spec", lambda module: None)
    result = runner.invoke(cli.app, ["paper", "convergence", "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "pip install 'entrec[paper]'" in result.output


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    result = runner.invoke(cli.app, ["paper", "convergence", "--seed", "-1", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "--seed" in result.output
