"""What a study shows in the terminal: how far it is, what became of its runs, and what they say."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from entrec.cli.edge import console, say

if TYPE_CHECKING:  # as they take seconds to import, which `entrec --help` should not
    from entrec.paper.grid.claims import Claim
    from entrec.paper.runner import Made

_BETWEEN_LINES = 60  # seconds, in a log
_COLOURS = {"holds": "green", "does not hold here": "red", "holds in part": "yellow", "not decided": "yellow", "failed": "red"}


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A function that says what is being done: in a terminal on a line that is gone at the end, in a log once a minute."""
    if not console.is_terminal:
        yield _once_a_minute()
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        yield lambda part: progress.update(task, description=part)


def _once_a_minute() -> Callable[[str], None]:
    begin = time.monotonic()
    next_at = 0.0

    def tell(part: str) -> None:
        nonlocal next_at
        seconds = time.monotonic() - begin
        if seconds >= next_at:
            next_at = seconds + _BETWEEN_LINES
            say(f"{timedelta(seconds=int(seconds))}  {part}")

    return tell


def show_made(made: "Made", wanted: Sequence[str], folder: Path) -> None:
    """How many of the runs that were wanted were there, ended, failed or were not begun; and why some failed.

    Args:
        made: what became of those that were left.
        wanted: names of all.
        folder: of the runs.
    """
    from entrec.paper.runner import outcome

    now = {*made.done, *made.failed, *made.not_begun, *made.elsewhere}
    states = {name: outcome(folder / name).state for name in wanted if name not in now}
    earlier = [name for name, state in states.items() if state == "failed"]
    there = len(states) - len(earlier)
    told = [f"{there} {'run was' if there == 1 else 'runs were'} there"]
    if earlier:
        again = "it" if len(earlier) == 1 else "them"
        told.append(f"{len(earlier)} failed before ({', '.join(earlier)}; --retry makes {again} again)")
    told += [f"{len(made.done)} made", f"{len(made.failed)} failed", f"{len(made.not_begun)} not begun"]
    told += [f"{len(made.elsewhere)} left to another process ({', '.join(made.elsewhere)})"] if made.elsewhere else []
    say(", ".join(told))
    for failed in made.failed:
        say(f"failed: {failed} ({outcome(folder / failed).reason})", "red")
    if made.turns:
        say(f"runs took turns on the GPU, as {made.turns}")
    if made.stopped:
        say(f"stopped: {made.stopped}. The same command goes on", "red")


def exit_by(made: "Made | None") -> None:
    """Exit status 1 where a run failed now, so that a script hears of it; after all results were written."""
    if made is not None and made.failed:
        raise typer.Exit(1)


def show_claims(claims: "Sequence[Claim]") -> None:
    """A word for each, and its numbers."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column()
    for claim in claims:
        colour, told = _COLOURS.get(claim.verdict, "dim"), f"[bold]{escape(claim.statement)}[/bold]\n{escape(claim.numbers)}"
        rows.add_row(f"[{colour}]{claim.word}[/]", told)
    console.print(rows, highlight=False)
