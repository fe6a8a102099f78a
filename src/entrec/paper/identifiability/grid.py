"""The cells of the tables, each a setting, run once and kept as one JSON file."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from entrec.files import require_writable
from entrec.identifiability import unfinished
from entrec.identifiability.content_style import ContentStyle, Isolation, isolate
from entrec.identifiability.experiment import Precision, Schedule, device_for
from entrec.identifiability.lab import Point, Result, Setting, identify
from entrec.identifiability.records import read, write
from entrec.paper.identifiability.published import COLUMNS, ROWS, Column, TableName, bandwidth
from entrec.paper.runner.mps import side_by_side
from entrec.paper.runner.processes import Died, shared_out

# Between cells of one folder: longer where the curve still rises, with another rate where that is the faster way, and faster.
MAY_DIFFER = ("steps", "rate", "schedule", "precision")


class Cell(NamedTuple):
    """A setting and where it stands: table, row from 1 on, column, and seed."""

    table: TableName
    row: int
    column: str
    seed: int
    setting: Setting | ContentStyle

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.table}-{self.row:02}-{self.column}-seed{self.seed}"


@dataclass(frozen=True)
class Scale:
    """How large the experiments are; None where the paper's protocol says.

    Args:
        steps: of training.
        batch: pairs in a step.
        width: of the encoder's wide layers, in dims.
        dim: latents (of content-style: of both parts together).
        draws: matrices to choose the mixing's from.
        rate: learning rate.
        schedule: of the rate: constant or cosine.
        precision: of products; None: 32.
    """

    steps: int | None = None
    batch: int | None = None
    width: int | None = None
    dim: int | None = None
    draws: int | None = None
    rate: float | None = None
    schedule: Schedule | None = None
    precision: Precision | None = None

    def given(self) -> dict[str, Any]:
        """What is not the protocol's."""
        return {key: value for key, value in asdict(self).items() if value is not None}


QUICK = Scale(steps=3000, batch=512, width=30, dim=3, draws=1000, rate=1e-3)  # a cell in one to three minutes of a CPU core


def cells(tables: Sequence[TableName], rows: Sequence[int], seeds: int, scale: Scale) -> list[Cell]:
    """All cells of some tables, or of some of their rows, those that test the theorem first.

    Raises:
        ValueError: there is no such row.
    """
    longest = max(len(_settings(table, scale)) for table in tables)
    for row in rows:
        if not 1 <= row <= longest:
            raise ValueError(f"row must be from 1 to {longest} in {' and '.join(tables)}, got {row}")
    found = [
        Cell(table, number, column, seed, replace(setting, seed=seed))
        for table in tables
        for number, settings in enumerate(_settings(table, scale), 1)
        for column, setting in settings.items()
        for seed in range(seeds)
    ]
    return sorted((cell for cell in found if not rows or cell.row in rows), key=lambda cell: (cell.row > 6, cell.seed))


def make(
    out: Path,
    wanted: Sequence[Cell],
    scale: Scale,
    device: str = "auto",
    progress: Callable[[str], None] = lambda part: None,
    jobs: int = 1,
    minutes: float | None = None,
) -> None:
    """Run what is not there yet, `jobs` at a time; each is kept as it ends, and one that was stopped goes on.

    Args:
        out: the folder.
        wanted: cells, in the order in which they are begun.
        scale: of the cells.
        device: where to compute.
        progress: hears how far it is.
        jobs: processes.
        minutes: after which no other cell is begun.

    Raises:
        ValueError: before anything is computed, where the folder holds cells of another scale, or those wanted with another
            number of steps or precision, or where one that was stopped was of another setting.
        ChildProcessError: a process ended in the middle of a cell; the other cells were run all the same.
    """
    until = math.inf if minutes is None else time.time() + 60 * minutes
    require_writable(out)
    device_for(device, scale.precision or "32")
    there = {cell.name: cell for cell in kept(out, scale)}
    for cell in wanted:
        if cell.name in there:
            _check_alike(_path(out, cell), there[cell.name].setting, cell.setting, ())
    left = [cell for cell in wanted if cell.name not in there]
    for cell in left:
        unfinished.kept(_unfinished(out, cell), cell.setting)
    if jobs > 1:
        _make_in_processes(out, left, device, progress, jobs, until)
        return
    for number, cell in enumerate(left, 1):
        _make_one(cell, out, device, until, progress, f"{number} of {len(left)}: {cell.name}")


def _make_in_processes(
    out: Path, left: Sequence[Cell], device: str, progress: Callable[[str], None], jobs: int, until: float
) -> None:
    """One that dies, as happens where memory is short, is named after all others have ended."""
    work, died = partial(_make_one, out=out, device=device, until=until), []
    with side_by_side(min(jobs, len(left)), device.partition(":")[0]):
        for number, (cell, result) in enumerate(shared_out(left, work, jobs), 1):
            progress(f"{number} of {len(left)} cells, the last {cell.name}")
            died += [f"{cell.name} ({result})"] if isinstance(result, Died) else []
    if died:
        raise ChildProcessError(f"{', '.join(died)}; the others are there, and the same command goes on")


def _make_one(
    cell: Cell, out: Path, device: str, until: float, progress: Callable[[str], None] = lambda part: None, said: str = ""
) -> None:
    if time.time() < until:
        write(_run(cell, device, progress, said, _unfinished(out, cell)), _path(out, cell))
        _unfinished(out, cell).unlink(missing_ok=True)


def kept(out: Path, scale: Scale) -> dict[Cell, Result | Isolation]:
    """Every cell that a folder holds.

    Raises:
        ValueError: one of them is of another scale.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"results need a folder, but {out} is a file")
    found: dict[Cell, Result | Isolation] = {}
    for cell in cells(get_args(TableName), (), 1, scale):
        for path in sorted((out / "cells").glob(f"{cell.name.removesuffix('0')}*.json")):
            result = read(path)
            seed = result.setting.seed
            _check_alike(path, result.setting, replace(cell.setting, seed=seed), MAY_DIFFER)
            found[cell._replace(seed=seed, setting=result.setting)] = result
    return found


def _check_alike(path: Path, there: Any, now: Any, may_differ: Sequence[str]) -> None:
    before, after = asdict(there), asdict(now)
    odd = [key for key in after if key not in may_differ and before.get(key) != after[key]]
    if odd:
        told = "; ".join(f"{key} {before.get(key)} there, {after[key]} now" for key in odd)
        raise ValueError(f"{path} is of another setting ({told}): choose another folder")


def _run(cell: Cell, device: str, progress: Callable[[str], None], said: str, resume: Path) -> Result | Isolation:
    """From the start, or from where it was stopped."""
    progress(said)
    if isinstance(cell.setting, ContentStyle):
        return isolate(cell.setting, device, lambda step, loss: progress(f"{said}, step {step}, loss {loss:.2f}"), resume)
    score = "r2" if cell.table == "affine" else "mcc"

    def told(at: Point) -> None:
        progress(f"{said}, step {at.step}, {score} {getattr(at, score):.1%}")

    return identify(cell.setting, device, told, resume)


def _path(out: Path, cell: Cell) -> Path:
    return out / "cells" / f"{cell.name}.json"


def _unfinished(out: Path, cell: Cell) -> Path:
    return out / "unfinished" / f"{cell.name}.pt"


def _settings(table: TableName, scale: Scale) -> list[dict[str, Any]]:
    """For each row of a table, its settings by column."""
    given = scale.given()
    if table == "content-style":
        dim = given.pop("dim", 10)
        parts = {"content": max(1, dim // 2), "style": max(1, dim - dim // 2)}
        # As many outputs as content with a narrow q, and more; the theorem's q, its entropy by its own kernel or a narrow one.
        ways: tuple[dict[str, Any], ...] = ({}, {"outputs": dim}, {"bandwidth": 1.0}, {"bandwidth": 1.0, "kernel": 0.1})
        return [{"er": ContentStyle(**parts, **given, **own)} for own in ways]
    return [
        {
            column: Setting(
                row.space, row.marginal, row.conditional, row.output, row.model, **_objective(column, row.model), **given
            )
            for column in COLUMNS
        }
        for row in ROWS[table]
    ]


def _objective(column: Column, model: str) -> dict[str, Any]:
    if column == "infonce":
        return {"objective": "infonce"}
    return {"objective": "er", "bandwidth": bandwidth(column, model)}
