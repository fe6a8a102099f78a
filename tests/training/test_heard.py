"""Options that the objective does not read are refused, with what would make it read them; what a run wrote is not."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import entrec
from entrec import cli
from entrec.methods import METHODS
from entrec.paper.grid.names import EXPERIMENTS
from entrec.paper.grid.presets import PRESETS
from entrec.paper.neighbours.grid import cells as neighbours
from entrec.paper.selection.grid import cells as selection
from entrec.training.presets import LIGHTLY, with_preset
from entrec.training.settings import read_config, settings
from tests.training.tiny import COMMON, HEADS, different, files_in, quick, source, stopped_before

ER = r"it belongs to the ER objective, er=True \(--er\)"
SPHERE = r"it belongs to ER on the sphere, er=True \(--er\) with the estimator joe or plugin \(--estimator\)"
UNHEARD: list[tuple[str, dict[str, Any], str]] = [
    *((method, {"weight": 2.0}, f"^weight=2.0 has no effect on {method}'s own loss: {ER}$") for method in METHODS),
    *((method, {"estimator": "joe"}, rf"^estimator=joe has no effect on {method}'s own loss: {ER}$")
      for method in ("simclr", "cmc", "ir", "moco", "byol", "dino")),
    ("byol", {"weight": 2, "er": False}, r"^weight=2.0 has no effect"),
    ("dino", {"kappa": 5.0}, f"^kappa=5.0 has no effect on dino's own loss: {SPHERE}$"),
    ("dino", {"kappa": 5.0, "er": True}, rf"^kappa=5.0 has no effect on dino with er=True \(--er\): {SPHERE}$"),
    *((method, {"temperature": 0.5, "er": True}, rf"on {method} with er=True .* own loss, which ER replaces; ER has kappa")
      for method in ("simclr", "cmc", "ir", "moco")),
    ("moco", {"queue": 99, "er": True}, r"^queue=99 has no effect on moco with er=True"),
    ("ir", {"negatives": 99, "er": True}, r"^negatives=99 has no effect on ir with er=True"),
    ("byol", {"scale": 0.5, "er": True}, r"^scale=0.5 has no effect on byol with er=True"),
    ("simclr", {"preset": "lightly", "temperature": 0.1, "er": True}, r"^temperature=0.1 has no effect"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "given", "words"), UNHEARD)
def test_what_has_no_effect_is_refused(method: str, given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        entrec.train(method, data=source(), out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--weight=2", "--estimator=joe", "--set=weight=0"])
def test_the_command_line_says_what_would_make_it_heard(option: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(cli.app, ["train", "byol", option, "--out", str(tmp_path / "run")], env={"COLUMNS": "200"})
    assert found.exit_code == 2
    assert "has no effect on byol's own loss: it belongs to the ER objective, er=True (--er)" in " ".join(found.output.split())
    assert not (tmp_path / "run").exists()


HEARD: list[tuple[str, dict[str, Any]]] = [
    ("byol", {"weight": 1}),  # as without
    ("byol", {"estimator": "plugin"}),
    ("dino", {"estimator": "discrete", "kappa": 10}),
    ("ir", {"er": True, "temperature": 0.07}),  # one default is for large images
    ("ir", {"er": True, "temperature": 0.1}),  # and one for small ones
    ("byol", {"er": True, "weight": 2, "estimator": "joe", "kappa": 5}),
    ("byol", {"kappa": 5}),  # the bound is measured with it
    ("dino", {"er": True, "estimator": "joe", "kappa": 5, "weight": 2}),
    ("swav", {"er": True, "weight": 2, "temperature": 0.2}),
    ("simclr", {"temperature": 0.5}),
    *((method, {"preset": "lightly", "er": er}) for method in LIGHTLY.methods for er in (False, True)),
    ("simclr", {"preset": "lightly", "temperature": 0.5, "er": True}),
]


@pytest.mark.parametrize(("method", "given"), HEARD)
def test_what_has_an_effect_or_changes_nothing_is_taken(method: str, given: dict[str, Any]) -> None:
    assert with_preset(method, given).items() >= given.items()


def test_kappa_has_an_effect_without_er(tmp_path: Path) -> None:
    one, other = (quick("byol", tmp_path / str(kappa), epochs=1, kappa=kappa).metrics for kappa in (10.0, 5.0))
    assert [row["loss"] for row in one[:3]] == [row["loss"] for row in other[:3]]
    for key in ("er_bound", "held_out_er_bound"):
        assert [row[key] for row in one if key in row] != [row[key] for row in other if key in row]


def test_a_wrong_kind_is_said_before_that_it_would_not_be_heard() -> None:
    with pytest.raises(TypeError, match="weight must be a number, got 'much'"):
        with_preset("byol", {"weight": "much"})


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_the_papers_runs_give_nothing_without_effect(preset: Any) -> None:
    found = [cell for experiment in EXPERIMENTS.values() for cell in experiment.wanted(preset).cells(preset, 1)]
    lightly = [cell._replace(given={"preset": "lightly", **cell.given}) for cell in neighbours()]
    for cell in (*found, *selection(), *lightly):
        with_preset(cell.method, cell.given)


@pytest.mark.parametrize("er", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_what_a_run_wrote_can_be_given_back(method: str, er: bool, tmp_path: Path) -> None:
    run = quick(method, tmp_path / "run", er=er, epochs=1, scores=False, lens=False)
    again = entrec.train(method, data=source(), config=run.folder / "config.yaml", out=tmp_path / "again")
    assert again.config == run.config
    assert different(run, again) == []


def written(path: Path, **changes: Any) -> Path:
    """The configuration of a run of an earlier version, which did not refuse, and had fewer settings."""
    config = {**settings("byol", {}).flat(), **vars(METHODS["byol"].defaults(64, True)), **changes}
    path.write_text(yaml.safe_dump({key: value for key, value in config.items() if key not in ("scale", "preset", "knn_all")}))
    return path


def test_what_an_earlier_run_wrote_and_did_not_hear_is_left_out(tmp_path: Path) -> None:
    found = read_config(written(tmp_path / "config.yaml", weight=2.0))
    assert found.pop("method") == "byol"
    assert found["kappa"] == 10.0
    assert "weight" not in found
    with_preset("byol", found)
    with pytest.raises(ValueError, match=r"weight=2.0 has no effect"):  # given now, beside the file
        with_preset("byol", {**found, "weight": 2.0})
    assert read_config(written(tmp_path / "config.yaml", weight=2.0, er=True))["weight"] == 2.0


def test_what_a_user_wrote_is_refused_as_if_given(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("method: byol\nepochs: 3\nweight: 2\n")
    with pytest.raises(ValueError, match=r"weight=2.0 has no effect"):
        entrec.train("byol", data=source(), config=tmp_path / "mine.yaml", out=tmp_path / "run")


def test_a_run_with_er_goes_on_without_er_being_said_again(tmp_path: Path) -> None:
    given: dict[str, Any] = {**COMMON, **HEADS["byol"]}
    with stopped_before(4):
        quick("byol", tmp_path / "run", er=True, weight=2.0)
    run = entrec.train("byol", data=source(), out=tmp_path / "run", resume=True, weight=2.0, **given)
    assert (run.config["er"], run.config["weight"]) == (True, 2.0)


def test_an_earlier_run_that_did_not_hear_an_option_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, stopped_before(4):
        patch.setattr("entrec.training.presets.refuse_unheard", lambda *_: None)
        quick("byol", tmp_path / "run", weight=2.0)
    before = files_in(tmp_path / "run")["config.yaml"]
    run = entrec.train("byol", data=source(), out=tmp_path / "run", resume=True)
    assert run.config["weight"] == 2.0
    assert files_in(tmp_path / "run")["config.yaml"] == before
