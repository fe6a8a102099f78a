"""`entrec paper NAME` from end to end, and what it refuses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from entrec.cli import app
from entrec.cli.paper.grid import SENTENCES
from entrec.paper.grid import EXPERIMENTS, PRESETS
from entrec.paper.grid.setting import Setting
from tests.paper.grid.runs import TINY, ended

# Of each experiment the runs that make test has time for; one folder, as experiments share their runs.
FEW = {
    "resilience": ("byol-seed0", "byol-er-seed0", "byol-ema0.8-seed0", "byol-er-ema0.8-seed0", "dino-seed0"),
    "extended": ("cmc-seed0", "byol-seed0", "dino-er-plugin-seed0"),
    "estimators": ("simclr-er-seed0", "simclr-er-joe-seed0"),
    "dynamics": ("byol-seed0", "byol-er-seed0", "byol-ema1-seed0", "dino-nocentring-seed0"),
    "clustering": ("swav-seed0", "dino-seed0", "deepcluster-seed0"),
    "weights": ("simclr-er-seed0", "simclr-er-weight100-seed0"),
    "mi-relation": ("cmc-seed0", "moco-seed0", "ir-seed0", "byol-seed0"),
}


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["paper", *words], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pool")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "quick", TINY)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", FEW)
def test_each_name_trains_and_renders(name: str, shared: Path) -> None:
    only = [word for cell in FEW[name] for word in ("--only", cell)]
    result = call(name, "--out", str(shared), "--device", "cpu", *only)
    assert result.exit_code == 0, result.output
    assert "0 failed, 0 not begun" in result.output
    results = json.loads((shared / name / "results.json").read_text())
    done = {setting["name"] for setting in results["settings"] if setting["state"] == "done"}
    assert {cell.removesuffix("-seed0") for cell in FEW[name]} <= done
    assert results["preset"]["epochs"] == 1
    assert (shared / name / f"{name}.png").stat().st_size > 5000  # what is in it: test_figures.py
    assert not list(shared.glob("runs/*/checkpoints"))
    again = call(name, "--out", str(shared), "--device", "cpu", *only)
    assert f"{len(FEW[name])} runs were there, 0 made" in again.output


@pytest.mark.usefixtures("tiny")
def test_all_names_at_once_make_every_run_once_and_render_all(tmp_path: Path) -> None:
    wanted = {setting for name in EXPERIMENTS for setting in EXPERIMENTS[name].wanted(TINY).all}
    result = call("all", "--out", str(tmp_path), "--device", "cpu", "--minutes", "0")
    assert result.exit_code == 0, result.output
    assert f"0 made, 0 failed, {len(wanted)} not begun" in result.output
    for name in EXPERIMENTS:
        assert f"    entrec paper {name} --preset quick" in (tmp_path / name / "table.md").read_text()
        assert str(tmp_path / name / "table.md") in result.output.replace("\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_name_in_full_on_the_quick_preset(name: str, tmp_path: Path) -> None:
    result = call(name, "--out", str(tmp_path), "--device", "cpu")
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / name / "results.json").read_text())
    assert {setting["state"] for setting in results["settings"]} == {"done"}
    assert "not run" not in {claim["verdict"] for claim in results["claims"]}


@pytest.mark.usefixtures("tiny")
def test_a_folder_of_other_runs_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    assert call("weights", "--out", str(tmp_path), "--minutes", "0").exit_code == 0
    ended(tmp_path / "runs", Setting("simclr"))
    for words, told in ((("--epochs", "2"), "epochs 1 there, 2 now"), (("--data", "digits"), "data shapes there, digits now")):
        result = call("weights", "--out", str(tmp_path), *words)
        assert result.exit_code == 2
        assert told in " ".join(result.output.split())
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.usefixtures("tiny")
def test_a_slip_in_the_command_does_not_spoil_the_folder(tmp_path: Path) -> None:
    result = call("weights", "--out", str(tmp_path), "--data", "no-such-data")
    assert result.exit_code == 2
    assert "no-such-data" in result.output
    assert call("weights", "--out", str(tmp_path), "--minutes", "0").exit_code == 0
    assert json.loads((tmp_path / "preset.json").read_text())["data"] == "shapes"


@pytest.mark.usefixtures("tiny")
def test_more_seeds_are_no_other_study(tmp_path: Path) -> None:
    assert call("weights", "--out", str(tmp_path), "--minutes", "0").exit_code == 0
    result = call("weights", "--out", str(tmp_path), "--minutes", "0", "--seeds", "3")
    assert "9 not begun" in result.output
    assert "    entrec paper weights --preset quick --seeds 3" in (tmp_path / "weights" / "table.md").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--render",), "holds no runs of the paper's experiments"),
        (("--only", "resnet*"), "no run is named like 'resnet*'"),
        (("--launcher", "slurm", "--slurm", "gpu"), "--slurm wants KEY=VALUE"),
        (("--preset", "huge"), "huge"),
    ],
)
def test_what_cannot_be_done_is_said(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = call("resilience", "--out", str(tmp_path), *words)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_every_experiment_has_a_command_and_the_help_groups_them() -> None:
    assert list(SENTENCES) == ["all", *EXPERIMENTS]
    result = call("--help")
    places = [result.output.index(word) for word in ("from training", "mi-relation", "truth is known", "identifiability")]
    assert places == sorted(places)
    assert "selection" in result.output
