"""The study of numbers without labels: what it takes from runs, how it correlates, and what it writes."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from entrec.cli import app
from entrec.data import open_source
from entrec.lens import look, look_at_codes
from entrec.methods import METHODS
from entrec.paper import runner as shared
from entrec.paper.runner import local
from entrec.paper.selection import Where, make, render, runner, study
from entrec.paper.selection.grid import cells
from entrec.training.loop import DivergedError
from entrec.training.run import Run, write_config, write_summary
from entrec.training.settings import settings

SPHERE = [cell.name for cell in cells() if cell.method in ("simclr", "byol", "moco", "cmc", "ir")]
CODES = [cell.name for cell in cells() if cell.method in ("swav", "deepcluster")]


UNTRAINED = {"command": Where("digits", 4, "cpu").command, "data": "some", "linear": 0.38, "standard_error": 0.01}


def ended(folder: Path, linear: float, held_out: dict[str, Any] | None) -> None:
    folder.mkdir(parents=True)
    settings_of = {"method": "byol", "epochs": 4, "batch_size": 64, "backbone": "tiny", "device": "cpu", "seed": 0}
    write_config(Run(folder), settings_of)
    versions = {"torch": "2", "python": "3"}
    write_summary(Run(folder), {"linear_top1": linear, "held_out": held_out, "verdict": "diverging", "versions": versions})


def on_the_sphere(er: float, **more: Any) -> dict[str, Any]:
    pairs = {"reconstruction": 1.0, "er_bound": er, "er_ceiling": 9.0, "infonce_bound": er / 2, "infonce_ceiling": 5.0}
    pairs |= {"alignment": 1.0, "nearer": 0.9}
    shape = {"rows": 256, "dim": 64, "kappa": 10.0, "largest_rank": 64, "spread": [0.1, 0.2, 0.3]}
    found = {"entropy": -3.0, "floor": -9.0, "ceiling": -1.0, "uniformity": -2.0, "rank": 20.0 - er, "pairs": pairs}
    return {**shape, **found, **more}


def of_codes(er: float) -> dict[str, Any]:
    """Even guesses."""
    ceilings = {"er_ceiling": math.log(8), "infonce_ceiling": math.log(256)}
    pairs = {"reconstruction": er - 2, "er_bound": er, "infonce_bound": None, "alignment": None, "nearer": 0.8, **ceilings}
    return {"rows": 256, "codes": 8, "marginal": math.log(8) / 2, "conditional": math.log(8), "pairs": pairs}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "untrained.json").write_text(json.dumps(UNTRAINED))
    for place, name in enumerate(SPHERE[:6]):  # the bound orders them as the probe does, the rank the other way round
        ended(tmp_path / "runs" / name, 0.5 + place / 20, on_the_sphere(float(place)))
    for place, name in enumerate(CODES[:5]):  # and among codes it is the other way round
        ended(tmp_path / "runs" / name, 0.5 - place / 20, of_codes(float(place)))
    return tmp_path


def test_there_are_thirty_runs_of_all_methods_each_with_settings_that_exist() -> None:
    grid = cells(256)
    assert len(grid) >= 30
    assert {cell.given["batch_size"] for cell in grid} == {128, 256, 512, 2048}
    assert len({cell.name for cell in grid}) == len(grid)
    assert {cell.method for cell in grid} == set(METHODS)
    for cell in grid:
        assert settings(cell.method, cell.given).method == cell.method


def test_correlations_are_of_ranks_within_a_group(out: Path) -> None:
    found = render(out).correlations
    for key, group, wanted, runs in (
        ("er_bound", "on the sphere", 1.0, 6), ("rank", "on the sphere", -1.0, 6), ("er_bound", "codes", -1.0, 5),
    ):  # fmt: skip
        assert found[key][group][0] == pytest.approx(wanted)
        assert found[key][group][1] == runs
    assert math.isnan(found["entropy"]["codes"][0])  # the same in all
    assert found["infonce_bound"]["all"][1] == 6  # codes have none
    assert math.isnan(found["reconstruction"]["all"][0])  # of two units
    assert math.isnan(found["rank"]["codes"][0])


def test_numbers_are_those_of_the_lens() -> None:
    z = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    seen = look(z, z + 0.3)
    numbers = study._numbers(asdict(seen))
    assert seen.pairs is not None
    assert numbers["entropy"] == pytest.approx(seen.filled, abs=1e-6)
    assert numbers["alignment_uniformity"] == -(seen.pairs.alignment or 0) - seen.uniformity
    codes = look_at_codes(z.softmax(dim=1), z.flip(1).softmax(dim=1))
    assert study._numbers(asdict(codes))["entropy"] == pytest.approx(codes.marginal / math.log(8))
    assert set(numbers) == set(study.NUMBERS)


def test_what_is_written(out: Path) -> None:
    found = render(out)
    table = (out / "table.md").read_text()
    assert "| ER bound |" in table
    assert "+1.00 (6)" in table
    assert f"| {SPHERE[5]} | 75.0% | healthy |" in table
    assert len(json.loads((out / "results.json").read_text())["readings"]) == len(found.readings) == 11
    assert (out / "er-bound.png").stat().st_size > 5000
    assert (out / "er-bound.svg").read_text().count("<svg") == 1


def test_a_run_without_a_reading_is_in_the_table_and_in_no_correlation(out: Path) -> None:
    ended(out / "runs" / SPHERE[7], 0.1, None)
    assert render(out).correlations["er_bound"]["on the sphere"][1] == 6
    assert "| 10.0% | diverging | - |" in (out / "table.md").read_text()


def test_runs_that_have_ended_are_not_made_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, bool]] = []

    def trained(method: str, **given: Any) -> None:
        made.append((given["out"].name, given["resume"]))
        ended(given["out"], 0.3, on_the_sphere(1.0))

    monkeypatch.setattr(local, "train", trained)
    make(out, Where("digits", 4, "cpu"))
    assert len(render(out).readings) == len(cells())
    assert not {name for name, _ in made} & {*SPHERE[:6], *CODES[:5]}
    made.clear()
    make(out, Where("digits", 4, "cpu"))
    assert made == []


def test_a_run_that_diverges_is_named_and_stops_no_other(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(method: str, **given: Any) -> None:
        given["out"].mkdir()
        raise DivergedError("at step 3")

    monkeypatch.setattr(local, "train", trained)
    make(out, Where("digits", 4, "cpu"))
    found = render(out)
    assert len(found.diverged) == len(cells()) - 11
    assert f"| {found.diverged[0]} | - | diverging, which stopped it |" in (out / "table.md").read_text()
    assert (out / "runs" / found.diverged[0] / "failed.txt").read_text().splitlines()[0] == "at step 3"


def test_a_run_that_failed_in_another_way_did_not_diverge(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(method: str, **given: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(local, "train", trained)
    made = make(out, Where("digits", 4, "cpu"))
    found = render(out)
    assert found.diverged == []
    assert set(found.failed) == set(made.failed)
    table = (out / "table.md").read_text()
    assert f"Failed: {min(made.failed)} (OSError: No space left on device); " in table
    assert "diverging, which stopped it" not in table
    assert make(out, Where("digits", 4, "cpu")).failed == []
    assert make(out, Where("digits", 4, "cpu"), retry=True).failed == made.failed


def test_alarms_are_false_where_a_run_learnt_and_missed_where_it_did_not(out: Path) -> None:
    found = render(out)
    # Learnt is above 41 %: of the codes' 50 to 30 %, all called uninformative, two are; on the sphere all are, and healthy.
    assert found.false_alarms == sorted(CODES[:2])
    assert found.missed == []
    ended(out / "runs" / SPHERE[6], 0.4, on_the_sphere(1.0))
    ended(out / "runs" / SPHERE[7], 0.2, on_the_sphere(8.9))
    assert set(render(out).missed) == set(SPHERE[6:8])
    assert "| uninformative | 2 | 3 |" in (out / "table.md").read_text()
    assert "| healthy | 6 | 1 |" in (out / "table.md").read_text()


@pytest.mark.slow
def test_several_runs_at_a_time_are_the_runs_one_by_one(tmp_path: Path) -> None:
    few = [cell for cell in cells(32) if cell.method == "cmc"]
    for jobs in (1, 2):
        made = shared.make(few, Where("digits", 1, "cpu").pool(tmp_path / str(jobs)), jobs)
        assert set(made.done) == {cell.name for cell in few}
    for cell in few:
        one, two = (Run(tmp_path / jobs / "runs" / cell.name).summary for jobs in ("1", "2"))
        assert one["linear_top1"] == pytest.approx(two["linear_top1"], abs=0.02)  # threads share sums in other ways
        assert one["held_out"]["rows"] == two["held_out"]["rows"]


def test_runs_of_another_study_are_left_alone(out: Path) -> None:
    with pytest.raises(ValueError, match="holds the runs of another study"):
        make(out, Where("digits", 5, "cpu"))


def test_fewer_images_and_another_encoder(tmp_path: Path) -> None:
    where = Where("digits", 1, "cpu", images=100, backbone="resnet18")
    source = shared.opened(where.pool(tmp_path).data)
    assert (len(source.train), len(source.test), source.backbone) == (100, 100, "resnet18")  # type: ignore[arg-type]
    assert where.command.endswith("--batch-size 64 --images 100 --backbone resnet18")


def test_the_untrained_encoder_is_what_learning_must_pass(tmp_path: Path) -> None:
    runner._score_untrained(tmp_path, Where("digits", 1, "cpu"))
    found = json.loads((tmp_path / "untrained.json").read_text())
    assert found["command"] == "entrec paper selection --data digits --epochs 1 --batch-size 64"
    assert 0.7 < found["linear"] < 1
    n = len(open_source("digits").test)  # type: ignore[arg-type]
    assert found["standard_error"] == pytest.approx(math.sqrt(found["linear"] * (1 - found["linear"]) / n))


def test_the_command_says_it(out: Path) -> None:
    result = CliRunner().invoke(app, ["paper", "selection", "--out", str(out), "--render"])
    assert result.exit_code == 0, result.output
    assert "11 runs" in result.output
    assert "+1.00" in result.output


def test_too_few_runs_are_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["paper", "selection", "--out", str(tmp_path), "--render"])
    assert result.exit_code == 2
    assert "at least 3 are needed" in " ".join(result.output.split())
