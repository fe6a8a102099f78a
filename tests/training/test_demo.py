"""The demo trains twice, says what changed in words and numbers, and replaces nothing unasked."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from entrec.training import demo
from entrec.training.run import Run, write_summary


def run_with(folder: Path, entropy: float, bound: float, linear: float) -> Run:
    folder.mkdir()
    run = Run(folder)
    write_summary(run, {"entropy": entropy, "er_bound": bound, "linear_top1": linear})
    return run


@pytest.mark.parametrize(
    ("plain", "er", "words"),
    [
        ((-3.0, 1.0, 0.4), (-1.0, 2.0, 0.7), ("2.00 nats more entropy", "rises from 1.00 to 2.00", "30.0 points more often")),
        ((-1.0, 2.0, 0.7), (-3.0, 1.0, 0.4), ("2.00 nats less entropy", "falls from 2.00 to 1.00", "30.0 points less often")),
    ],
)
def test_the_words_follow_the_numbers(
    plain: tuple[float, float, float], er: tuple[float, float, float], words: tuple[str, ...], tmp_path: Path
) -> None:
    text = demo.what_er_changes(run_with(tmp_path / "plain", *plain), run_with(tmp_path / "er", *er))
    assert [word for word in words if word not in text] == []


def test_a_page_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(FileExistsError, match=r"report\.html exists: ask for overwrite=True \(--overwrite\)"):
        demo.run(tmp_path, Console(file=io.StringIO()), epochs=1)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_it_ends_with_a_table_and_the_path_of_its_report(tmp_path: Path) -> None:
    shown = io.StringIO()
    report = demo.run(tmp_path / "demo", Console(file=shown, width=80), epochs=1)
    text = shown.getvalue()
    for words in ("BYOL + ER", "entropy", "reconstruction", "ER bound", "kNN", "linear probe", "With ER in place of its loss"):
        assert words in text
    assert "…" not in text
    assert report.is_file()
    assert "report.html" in text
    assert Run(tmp_path / "demo" / "byol-er").config["ema"] == demo.EMA
    demo.run(tmp_path / "demo", Console(file=shown, width=80), epochs=1, overwrite=True)
