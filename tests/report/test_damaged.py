"""Runs half written or half deleted: a message that names the file, or a page that says what it lacks."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrec.cli import app
from entrec.report.report import report
from entrec.training.run import Run
from tests.report.test_page import make_run
from tests.training.tiny import folder_of_files, quick


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("damaged")
    return quick("byol", folder / "run", folder_of_files(folder / "data"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.yaml", ""),
        ("config.yaml", "method: byol\ner: fal"),
        ("config.yaml", "method: byol\n"),
        ("config.yaml", "er: false\n"),
        ("config.yaml", "met\n"),
        ("config.yaml", "method: 'byol\n"),
        ("config.yaml", "\x00\x00\n"),
        ("summary.json", ""),
        ("summary.json", '{"entropy": 1.2'),
        ("summary.json", "[1, 2]"),
        ("metrics.csv", "step,epoch,loss\n1,0,x\n2,0,1.0\n"),
        ("metrics.csv", "step,epoch,loss\n1,0\n2,0,1.0\n"),
        ("metrics.csv", "step,epoch,loss\n1,0,1.0,1.0\n"),
        ("metrics.csv", "loss\n1.0\n"),
    ],
)
def test_a_damaged_file_is_named(file: str, content: str, tmp_path: Path) -> None:
    make_run(tmp_path / "run", "byol", False)
    (tmp_path / "run" / file).write_text(content)
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"), "--no-images"])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    said = "".join(result.output.split())
    assert f"run/{file}is" in said
    assert not (tmp_path / "page.html").exists()


def test_bytes_that_are_no_text_are_damage_too(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "byol", False)
    (tmp_path / "run" / "summary.json").write_bytes(b"{\xff\xfe")
    with pytest.raises(ValueError, match=r"summary\.json is damaged, or was cut off"):
        report([tmp_path / "run"], tmp_path / "page.html", images=False)


@pytest.mark.parametrize("damage", ["no checkpoint", "half a checkpoint", "an empty checkpoint", "other bytes", "no data"])
def test_what_one_run_lacks_is_left_out_and_said(damage: str, trained: Run, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "run")
    run = Run(tmp_path / "run")
    whole = run.checkpoint.read_bytes()
    if damage == "no checkpoint":
        run.checkpoint.unlink()
    elif damage == "no data":
        moved = Path(trained.config["data"])
        shutil.move(moved, tmp_path / "moved")
    else:
        kept = {"half a checkpoint": whole[: len(whole) // 2], "an empty checkpoint": b"", "other bytes": b"\x80\x02."}[damage]
        run.checkpoint.write_bytes(kept)
    words = ["report", str(trained.folder), str(run.folder), "--out", str(tmp_path / "page.html"), "--device", "cpu"]
    try:
        result = CliRunner().invoke(app, words)
    finally:
        if damage == "no data":
            shutil.move(tmp_path / "moved", moved)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text()
    lost = 2 if damage == "no data" else 1  # both runs were trained on these
    assert page.count("are left out: ") == lost
    assert " ".join(result.output.split()).count("are left out: ") == lost
    assert page.count("class='query'") == 6 * (2 - lost)
    assert page.count("id='run1-er_bound'") == 1


def test_images_that_were_asked_for_and_are_not_there_are_a_mistake(trained: Run, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no folder or archive"):
        report([trained], tmp_path / "page.html", data="no/such/folder", device="cpu")
    with pytest.raises(ValueError, match=r"device \(--device\) must be"):
        report([trained], tmp_path / "page.html", device="abacus")
    assert not (tmp_path / "page.html").exists()
