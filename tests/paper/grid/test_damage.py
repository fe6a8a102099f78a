"""Files of a grid that cannot be read, folders that are somebody's own, and data that are not the same."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from entrec.data import open_source
from entrec.paper.grid import PRESETS, begin, render
from entrec.paper.grid.fingerprint import differences, fingerprint
from entrec.paper.grid.names import EXPERIMENTS
from entrec.paper.grid.setting import Setting
from tests.paper.grid.runs import TINY, ended


@pytest.fixture
def out(tmp_path: Path) -> Path:
    begin(tmp_path, "resilience", TINY)
    return tmp_path


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("content", ["", "step,epoch\n1\n2,x\n3,0\n"])
def test_a_damaged_metrics_file_is_a_failed_run(out: Path, name: str, content: str) -> None:
    setting = EXPERIMENTS[name].wanted(TINY).claims[0]
    (ended(out / "runs", setting) / "metrics.csv").write_text(content)
    found = render(out, name)
    text = (out / name / "table.md").read_text()
    assert f"Failed: {setting.name(TINY)}-seed0 (damaged: metrics.csv" in text
    assert not any(part.decided and part.seeds for claim in found.claims for part in claim.parts)
    assert str(out) not in text


def test_a_run_whose_metrics_lack_the_entropy_is_named(out: Path) -> None:
    (ended(out / "runs", Setting("swav"), epochs=1) / "metrics.csv").write_text("step,epoch,loss\n1,0,2\n")
    (claim,) = render(out, "clustering").claims
    assert claim.word == "failed"
    assert "SwAV: failed: metrics.csv lacks a number" in claim.numbers


@pytest.mark.parametrize("name", ["resilience", "dynamics", "weights", "mi-relation"])
@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("summary.json", "{}", "summary.json lacks epochs, summary.json lacks held_out_entropy"),
        ("summary.json", '{"verdict": "healthy"}', "summary.json lacks epochs"),
        ("config.yaml", "method: simclr\ndevice: cpu\n", "config.yaml lacks kappa, config.yaml lacks dim"),
        ("config.yaml", None, "config.yaml"),
        ("metrics.csv", "step,epoch,entropy\n1,0,-5\n", "metrics.csv ends in epoch 1 of 2"),
    ],
)
def test_a_file_that_lacks_what_is_read_of_it_is_a_failed_run(
    out: Path, name: str, file: str, content: str | None, said: str
) -> None:
    folder = ended(out / "runs", Setting("simclr", er=name == "weights"))
    (folder / file).unlink() if content is None else (folder / file).write_text(content)
    found = render(out, name)
    text = (out / name / "table.md").read_text()
    assert f"Failed: {folder.name} (damaged: " in text or f"; {folder.name} (damaged: " in text
    assert said in text
    assert not any(part.decided and part.seeds for claim in found.claims for part in claim.parts)


@pytest.mark.parametrize("score", [float("nan"), "high", True])
def test_a_score_that_is_no_number_is_none(out: Path, score: object) -> None:
    ended(out / "runs", Setting("simclr"), linear=score)  # type: ignore[arg-type]
    render(out, "resilience")
    assert "| SimCLR | failed in 1 of 1" in (out / "resilience" / "table.md").read_text()


@pytest.mark.parametrize("change", [{"name": "other"}, {"epochs": "two"}, {"backbone": 18}, {"weights": 3}])
def test_a_preset_whose_values_cannot_be_is_named(out: Path, change: dict[str, object]) -> None:
    facts = json.loads((out / "preset.json").read_text())
    (out / "preset.json").write_text(json.dumps({**facts, **change}))
    with pytest.raises(ValueError, match=r"preset\.json is damaged"):
        render(out, "resilience")


def test_a_damaged_preset_is_named(out: Path) -> None:
    ended(out / "runs", Setting("byol"))
    for content in ("{", "[]", "{}"):
        (out / "preset.json").write_text(content)
        with pytest.raises(ValueError, match=r"preset\.json is damaged"):
            render(out, "resilience")
    (out / "preset.json").write_text("{")
    with pytest.raises(ValueError, match=r"preset\.json is damaged"):
        begin(out, "resilience", TINY)


def test_a_damaged_note_is_named(out: Path) -> None:
    (ended(out / "runs", Setting("byol")) / "made.json").write_text("{")
    render(out, "resilience")
    assert "Failed: byol-seed0 (damaged: made.json: " in (out / "resilience" / "table.md").read_text()


def test_a_failure_without_a_reason_is_one(out: Path) -> None:
    folder = out / "runs" / "byol-seed0"
    folder.mkdir(parents=True)
    (folder / "failed.txt").write_text("")
    render(out, "resilience")
    assert "Failed: byol-seed0 (nothing was noted)." in (out / "resilience" / "table.md").read_text()


def test_folders_with_other_names_are_left_alone(out: Path) -> None:
    folder = ended(out / "runs", Setting("byol"))
    folder.rename(folder.with_name("byol-seed0-old"))
    render(out, "resilience")
    results = json.loads((out / "resilience" / "results.json").read_text())
    assert {setting["state"] for setting in results["settings"]} == {"not run"}


def test_another_preset_is_told_in_a_line(out: Path) -> None:
    ended(out / "runs", Setting("byol"))
    with pytest.raises(ValueError, match=r"holds runs of preset quick, not cifar10: choose another folder$"):
        begin(out, "resilience", PRESETS["cifar10"])


def test_other_data_of_the_same_name_are_refused(out: Path) -> None:
    ended(out / "runs", Setting("byol"))
    path = out / "preset.json"
    facts = json.loads(path.read_text())
    begin(out, "resilience", TINY)
    path.write_text(json.dumps({**facts, "fingerprint": {**facts["fingerprint"], "train": 63}}))
    with pytest.raises(ValueError, match=r"holds runs on other data \(train 63 there, 64 now\)"):
        begin(out, "resilience", TINY)
    render(out, "resilience")  # which needs no data
    facts.pop("fingerprint")
    path.write_text(json.dumps(facts))
    begin(out, "resilience", TINY)
    assert json.loads(path.read_text())["fingerprint"]["train"] == 64


def test_a_fingerprint_tells_data_apart_and_not_decoders() -> None:
    source = open_source("shapes")
    found = fingerprint(source)
    assert found["classes"] == len(source.classes)
    assert json.loads(json.dumps(found)) == found
    near = replace(source, mean=tuple(x + 1e-3 for x in source.mean))
    assert differences(found, fingerprint(near)) == []
    other = replace(source, classes=source.classes[::-1], mean=tuple(x + 0.1 for x in source.mean))
    assert [told.split()[0] for told in differences(found, fingerprint(other))] == ["names", "mean"]
