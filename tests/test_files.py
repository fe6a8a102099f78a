import os
from pathlib import Path

import pytest

from entrec.files import appearing, readable, refuse_existing


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
