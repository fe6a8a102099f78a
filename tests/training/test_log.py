"""What the terminal shows of a run, however wide it is."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from entrec.training.log import Log

# As wide as they come: a run of many steps, and entropies of three digits.
ROW = {"loss": 347.12, "entropy": -348.89, "reconstruction": 344.57, "er_bound": -4.32, "probe_top1": 0.312}
SCORE = {"knn_top1": 0.361, "held_out_er_bound": 1.5}


def bar(width: int, folder: Path, *rows: dict[str, float]) -> str:
    """The progress bar after these rows, on a terminal of this width."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, legacy_windows=False)
    log = Log(folder, 20_000, 0, console)
    for row in rows:
        log.row({"step": 10_123, "epoch": 61, **row}, 200)
    console.file = shown = io.StringIO()
    log._progress.refresh()
    log.close()
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue().replace("\r", "\n")).split("\n")
    return next(line for line in lines if "epoch" in line).rstrip()


@pytest.mark.parametrize("rows", [[ROW], [ROW, SCORE], [SCORE, ROW]], ids=["measured", "scored", "measured again"])
def test_eighty_columns_show_progress_epoch_and_bound(rows: list[dict[str, float]], tmp_path: Path) -> None:
    line = bar(80, tmp_path, *rows)
    assert len(line) <= 80
    assert re.fullmatch(r"epoch 62/200 [━╸╺]{10} 10123/20000 loss 347.12  bound -4.32 left +\S+", line), line


def test_a_wide_terminal_shows_everything(tmp_path: Path) -> None:
    line = bar(160, tmp_path, ROW, SCORE)
    numbers = "loss 347.12  H -348.89  rec 344.57  bound -4.32  probe 31.2%  kNN 36.1%"
    assert re.fullmatch(rf"epoch 62/200 [━╸╺]{{20}} 10123/20000 {numbers} \d:\d\d:\d\d left +\S+", line), line


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120, 140])
def test_nothing_is_cut_off(width: int, tmp_path: Path) -> None:
    line = bar(width, tmp_path, ROW, SCORE)
    assert len(line) <= width
    assert "…" not in line
    assert all(word in line for word in ("epoch 62/200", "10123/20000", "bound -4.32"))
