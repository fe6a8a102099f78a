"""Data without a test split: the lens looks at training images, and whoever reads of it is told so."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from entrec.report.report import report
from entrec.training import checkpoint
from entrec.training.held_out import HeldOut
from entrec.training.run import Run
from tests.training.tiny import folder_of_files, pixels, quick, source, write_png


def unlabelled(folder: Path) -> Path:
    for i, image in enumerate(pixels()):
        write_png(folder / f"{i:03}.png", image)
    return folder


def printed(out: Path, test: bool) -> tuple[Run, str]:
    console = Console(record=True, width=200, file=io.StringIO())
    data = source() if test else replace(source(), test=None)
    run = quick("byol", out, data, keep="best-er", console=console)
    return run, console.export_text()


def test_training_says_which_images_the_lens_saw(tmp_path: Path) -> None:
    run, text = printed(tmp_path / "run", test=False)
    assert "held-out" not in text
    assert "of the highest ER bound on views of training images (there is no test split)" in text
    assert "lens, on the student's projections of views of training images (there is no test split): " in text
    assert run.summary["looked_at"] == "train"
    assert "Seen on 48 images that are trained on, as the data have no test split." in run.summary["diagnosis"]["because"]
    assert "held_out_er_bound" in run.metrics[-1]  # names stay


def test_where_images_are_held_out_it_says_so(tmp_path: Path) -> None:
    run, text = printed(tmp_path / "run", test=True)
    assert "of the highest ER bound on held-out views" in text
    assert "training images" not in text
    assert run.summary["looked_at"] == "test"
    assert not any("trained on" in sentence for sentence in run.summary["diagnosis"]["because"])


def test_a_failure_is_said_with_the_images_that_it_was_seen_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldOut, "seen", lambda *_: (torch.full((48, 8), torch.nan),) * 2 + (False,))
    _, text = printed(tmp_path / "run", test=False)
    assert "Seen on 48 images that are trained on" in text


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """One whose images are all trained on, and one that has held some out."""
    folder = tmp_path_factory.mktemp("runs")
    return (
        quick("byol", folder / "all", unlabelled(folder / "images")),
        quick("simclr", folder / "split", folder_of_files(folder / "split-images")),
    )


def test_the_page_calls_training_images_by_their_name(runs: tuple[Run, Run], tmp_path: Path) -> None:
    page = report(runs[:1], tmp_path / "page.html", device="cpu").read_text()
    for words in (
        "Entropy, on training images (0: one point, 1: evenly spread)",
        "ER bound, on training images (nats)",
        "entropy, on training images (0 to 1)",
        "of the student's projections (on training images)",
        "<h2>Maps of images</h2>",
        "Not held out, as there is no test split, but of the images to train on: those of BYOL.",
        "Here there is no test split: the lens looked at images that were trained on (BYOL).",
        "Seen on 48 images that are trained on",
    ):
        assert words in page
    assert "held-out" not in page
    assert ", held out" not in page


def test_beside_a_run_that_held_images_out_the_page_says_which_did_not(runs: tuple[Run, Run], tmp_path: Path) -> None:
    page = report(runs, tmp_path / "page.html", device="cpu").read_text()
    assert "ER bound, held out or on training images (nats)" in page
    assert "the lens looked at images that were trained on (BYOL)." in page
    assert "those of BYOL." in page
    own = report(runs[1:], tmp_path / "own.html", device="cpu").read_text()
    assert "<h2>Maps of held-out images</h2>" in own
    assert "ER bound, held out (nats)" in own
    assert "training images" not in own


def test_of_a_run_that_goes_on_its_checkpoint_says_it(runs: tuple[Run, Run], tmp_path: Path) -> None:
    for run, held_out in zip(runs, (False, True), strict=True):
        assert checkpoint.load(run.checkpoint).facts["held_out"] is held_out
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.yaml", "metrics.csv", "checkpoints/last.ckpt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes((runs[0].folder / name).read_bytes())
    page = report([folder], tmp_path / "page.html", images=False).read_text()
    assert "ER bound, on training images (nats)" in page
