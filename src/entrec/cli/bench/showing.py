"""What every benchmark's command does: measure, show, and keep."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import Progress, TextColumn
from rich.table import Table

from entrec.cli.edge import console, fail, require_free_file, say


def require_free_files(out: Path | None, overwrite: bool) -> None:
    """Stop unless the JSON file and the tables beside it can be written, and would replace nothing unasked."""
    if out is None:
        return
    if out.suffix == ".md":
        fail(f"--out must be a JSON file, as the tables go beside it, as .md; got {out}")
    require_free_file(out, overwrite)  # a folder too, which may have no name to put .md to
    require_free_file(out.with_suffix(".md"), overwrite)


def measured(module: Any, chosen: Any) -> Any:
    """What a benchmark's `run` finds, with the part that it is at shown."""
    # Drawn only when a part begins: a thread that redraws would take time from what is timed.
    with Progress(TextColumn("{task.description}"), console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("starting")
        return module.run(chosen, lambda part: progress.update(task, description=part, refresh=True))


def show(tables: Any, benchmark: Any, shown: Sequence[Table], out: Path | None) -> None:
    """Tables and what they mean, in the terminal; `tables` is the module that makes them. Kept in a file, if there is one."""
    console.print(f"{escape(tables.title(benchmark))}\n", highlight=False)
    for table in shown:
        console.print(table, "", highlight=False)
    console.print("\n".join(escape(note) for note in tables.footnotes(benchmark)), highlight=False)
    if out is not None:
        _keep(tables, benchmark, out)


def _keep(tables: Any, benchmark: Any, out: Path) -> None:
    """Everything as JSON, and the tables beside it as Markdown."""
    from entrec.bench.results import write

    write(benchmark, out)
    out.with_suffix(".md").write_text(tables.markdown(benchmark))
    say(f"Written to {out} and, as tables, {out.with_suffix('.md').name}")
