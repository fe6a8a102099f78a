"""What is said in a terminal stands there as it is, names of files above all."""

import io
import os

import pytest
import typer
from rich.console import Console

from entrec.cli import edge
from entrec.saying import show_line

ODD = "/data/[bold]/:smile:/" + 30 * "long-and-" + os.fsdecode(b"/\xff.png")
WHOLE = ODD.replace("\udcff", r"\udcff")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_path_is_one_line_and_neither_markup_nor_emoji(terminal: bool) -> None:
    file = io.StringIO()
    show_line(f"Written to {ODD}", Console(file=file, width=40, force_terminal=terminal, color_system=None))
    assert file.getvalue() == f"Written to {WHOLE}\n"


def test_a_mistake_is_told_in_lines_between_words_with_its_path_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        edge.fail(f"{ODD} has no image in it, nor anything else there that could be one of those images that you mean")
    lines = [line.rstrip() for line in capsys.readouterr().err.splitlines()]
    assert any(WHOLE in line for line in lines)
    assert all(len(line) <= 80 for line in lines if WHOLE not in line)
    assert len(lines) > 2


@pytest.mark.parametrize("columns", ["0", "1", "80"])
def test_a_mistake_is_told_in_a_terminal_of_any_width(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(typer.Exit):
        edge.fail("there is no such thing")
    assert " ".join(capsys.readouterr().err.split()) == "error: there is no such thing"
