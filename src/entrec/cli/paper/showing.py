"""How far a study is, in a line that moves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from entrec.cli.edge import console


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A function that says what is being done; the line is gone at the end."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        yield lambda part: progress.update(task, description=part)
