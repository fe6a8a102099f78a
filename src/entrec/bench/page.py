"""What the benchmarks of training share: their tables' form, the run in words, and the page of Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from entrec.bench.results import Machine

BUSY = "The machine was busy when this began: the times are too long. Measure again when it is not."


def empty_table() -> Table:
    """A table to be filled."""
    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))


def trained(run: Mapping[str, Any]) -> str:
    """What was trained, from the run's settings."""
    return f"{run['method']}{' + ER' if run['er'] else ''}, {run['backbone']}, views of {run['image_size']} pixels"


def markdown(title: str, machine: Machine, command: str, tables: Sequence[Table], notes: Sequence[str]) -> str:
    """All of it as a page, with the command that makes it again; the title is two lines, what and where."""
    first, where = title.split("\n")
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items() if version)
    lines = [f"# {first}", "", f"{where}; {versions}.", "", f"    {command}", ""]
    for shown in tables:
        lines.append("| " + " | ".join(str(column.header).replace("\n", " ") for column in shown.columns) + " |")
        lines.append("|" + "".join("---|" if column.justify == "left" else "---:|" for column in shown.columns))
        lines += ["| " + " | ".join(map(str, cells)) + " |" for cells in zip(*(c.cells for c in shown.columns), strict=True)]
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in notes), ""])
