"""What a study shows in the terminal: how far it is, what became of its runs, and what they say."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from entrec.cli.edge import console

if TYPE_CHECKING:  # as they take seconds to import, which `entrec --help` should not
    from entrec.paper.grid.claims import Claim
    from entrec.paper.runner import Made

_COLOURS = {"holds": "green", "does not hold here": "red", "holds in part": "yellow"}


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A function that says what is being done; the line is gone at the end."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        yield lambda part: progress.update(task, description=part)


def show_made(made: "Made", wanted: int, folder: Path) -> None:
    """How many of the runs that were wanted were there, ended, failed or were not begun; and why some failed."""
    from entrec.paper.runner import outcome

    there = wanted - sum(map(len, made))
    console.print(
        f"{there} runs were there, {len(made.done)} made, {len(made.failed)} failed, {len(made.not_begun)} not begun",
        highlight=False,
    )
    for failed in made.failed:
        console.print(f"failed: {failed} ({outcome(folder / failed).reason})", style="red", highlight=False, markup=False)


def show_claims(claims: "Sequence[Claim]") -> None:
    """A word for each, and its numbers."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column()
    for claim in claims:
        rows.add_row(f"[{_COLOURS.get(claim.word, 'dim')}]{claim.word}[/]", f"[bold]{claim.statement}[/bold]\n{claim.numbers}")
    console.print(rows, highlight=False)
