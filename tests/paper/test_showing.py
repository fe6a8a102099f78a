import io
from collections.abc import Callable

import pytest
from rich.console import Console

from entrec.cli import edge
from entrec.cli.paper import showing


def said_to(console: Console, monkeypatch: pytest.MonkeyPatch, times: list[float]) -> None:
    clock = iter([0.0, *times])
    monkeypatch.setattr(showing, "console", console)
    monkeypatch.setattr(edge, "console", console)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with showing.progress_line() as say:
        speak: Callable[[str], None] = say
        for number in range(len(times)):
            speak(f"{number} of 9 cells")


def test_a_log_is_told_how_far_it_is_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    said_to(Console(file=file, width=20), monkeypatch, [0.0, 30.0, 59.9, 60.0, 61.0, 4000.0])
    assert file.getvalue().splitlines() == ["0:00:00  0 of 9 cells", "0:01:00  3 of 9 cells", "1:06:40  5 of 9 cells"]


def test_in_a_terminal_the_line_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(showing, "console", console)
    with showing.progress_line() as say:
        say("3 of 9 cells")
    assert console.file.getvalue().endswith("\x1b[2K")  # type: ignore[attr-defined]
