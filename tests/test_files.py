import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrec.cli import app
from entrec.files import appearing, readable, refuse_existing, require_writable


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), appearing(path) as unfinished:
        _write_half(unfinished)
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]
    assert path.read_text() == "old"


def test_a_write_that_ends_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "summary.json"
    with appearing(path) as unfinished:
        unfinished.write_text("whole")
        assert not path.exists()
    assert [p.name for p in path.parent.iterdir()] == ["summary.json"]
    assert path.read_text() == "whole"


def test_what_exists_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    refuse_existing(tmp_path / "b")
    with pytest.raises(FileExistsError, match="a exists: ask for overwrite=True"):
        refuse_existing(tmp_path / "a", tmp_path / "b")


def test_whether_a_path_can_be_written_is_known_before_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for fine in (tmp_path, tmp_path / "new", tmp_path / "new" / "er", tmp_path / "file", Path("relative") / "new"):
        monkeypatch.chdir(tmp_path)
        require_writable(fine)
    with pytest.raises(NotADirectoryError, match=r"deep cannot be written: .*file is no folder"):
        require_writable(tmp_path / "file" / "very" / "deep")
    monkeypatch.setattr("entrec.files.NamedTemporaryFile", read_only)
    with pytest.raises(OSError, match=r"x cannot be written: in .* no file can be made \(Read-only file system\)"):
        require_writable(tmp_path / "new" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def read_only(**_: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


OUT = "a/new/out"
WRITES: list[list[str]] = [
    ["train", "byol", "--data", "digits", "--device", "cpu", "--out", OUT],
    ["identify", "--device", "cpu", "--out", OUT],
    ["report", "a/run", "--out", OUT],
    ["lens", "a/z.npy", "--html", OUT],
    ["paper", "convergence", "--quick", "--out", OUT],
    ["paper", "selection", "--device", "cpu", "--out", OUT],
    ["paper", "neighbours", "--device", "cpu", "--data", "digits", "--out", OUT],
    ["paper", "weights", "--preset", "quick", "--device", "cpu", "--out", OUT],
    ["paper", "identifiability", "--quick", "--device", "cpu", "--out", OUT],
    *(["bench", name, "--out", OUT] for name in ("loss", "train", "data", "lens", "ranks", "identify")),
]


@pytest.mark.parametrize("words", WRITES, ids=lambda words: " ".join(words[:2]))
def test_commands_say_that_nothing_can_be_written_before_they_begin(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("entrec.files.NamedTemporaryFile", read_only)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2, done.output
    told = " ".join(done.output.split())
    assert "out cannot be written: in" in told
    assert "(Read-only file system)" in told
    assert told.startswith("error:")
    assert not any(tmp_path.iterdir())


def _write_half(path: Path) -> None:
    path.write_text("ne")
    raise OSError("disk full")


def test_a_file_can_be_read_by_whom_the_user_lets_read_new_ones(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with appearing(tmp_path / "new") as unfinished:
        assert not unfinished.exists()
        unfinished.touch(mode=0o600)  # as safetensors makes them
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_names_become_text_that_every_terminal_takes() -> None:
    assert readable("é[b].png") == "é[b].png"
    assert readable(os.fsdecode(b"\xff.png")) == r"\udcff.png"
