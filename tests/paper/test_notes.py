"""What is noted of runs that failed: why, in a line for readers elsewhere too, and whether their numbers were to blame."""

from pathlib import Path

import pytest

from entrec.paper.runner import left, outcome
from entrec.paper.runner.cell import Cell, Data, Pool
from entrec.paper.runner.notes import forget_failure, note_failure
from entrec.paper.runner.reasons import LONGEST, in_a_line
from entrec.training.loop import DivergedError
from entrec.training.run import Run, write_summary


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("no room in /home/ann/data/cifar10.tar.xz, or elsewhere", "no room in cifar10.tar.xz, or elsewhere"),
        ("[Errno 2] No such file: '/home/ann/my images/a b.png'", "[Errno 2] No such file: 'a b.png'"),
        ('File "/opt/x/y.py", line 3 (/tmp/z)', 'File "y.py", line 3 (z)'),
        ("data=/scratch/ann/train: empty", "data=train: empty"),
        ("~/data/images/ is empty", "images is empty"),
        ("see https://example.org/a/b and/or 1/2, a / b", "see https://example.org/a/b and/or 1/2, a / b"),
        ("the last is /runs/byol-seed0/checkpoints/last.ckpt", "the last is checkpoints/last.ckpt"),
        ("two\n lines", "two lines"),
    ],
)
def test_a_reason_names_no_folder_of_this_machine(text: str, wanted: str) -> None:
    assert in_a_line(text, Path("/runs/byol-seed0")) == wanted


def test_a_reason_is_a_line_however_much_there_is_to_say(tmp_path: Path) -> None:
    note_failure(tmp_path, RuntimeError("word " * 100))
    reason = outcome(tmp_path).reason
    assert len(reason) <= LONGEST == 160
    assert reason.startswith("RuntimeError: word word")
    assert reason.endswith("...")
    assert "word " * 100 in (tmp_path / "traceback.txt").read_text()  # all of it is kept


def test_only_a_run_whose_numbers_were_none_any_more_diverged(tmp_path: Path) -> None:
    note_failure(tmp_path / "a", DivergedError("NaN at step 3"))
    note_failure(tmp_path / "b", OSError("No space left on device"))
    assert outcome(tmp_path / "a") == ("failed", "NaN at step 3", True)
    assert outcome(tmp_path / "b") == ("failed", "OSError: No space left on device", False)


def test_a_diverged_runs_summary_goes_with_its_failure(tmp_path: Path) -> None:
    """It would look like a done run's."""
    write_summary(Run(tmp_path), {"verdict": "diverging"})
    note_failure(tmp_path, DivergedError("NaN at step 3"))
    forget_failure(tmp_path)
    assert outcome(tmp_path).state == "not run"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b'{"linear_top1": 0.', b"", b"[]", b"\xff\xfe"])
def test_a_summary_that_cannot_be_read_is_a_failure_that_can_be_made_again(tmp_path: Path, content: bytes) -> None:
    cell, pool = Cell("byol-seed0", "byol", {}), Pool(tmp_path, Data("shapes"), {})
    (tmp_path / cell.name).mkdir()
    (tmp_path / cell.name / "summary.json").write_bytes(content)
    assert outcome(tmp_path / cell.name) == ("failed", "damaged: summary.json cannot be read", False)
    assert left([cell], pool) == []
    assert left([cell], pool, retry=True) == [cell]
    forget_failure(tmp_path / cell.name)
    assert outcome(tmp_path / cell.name).state == "not run"
