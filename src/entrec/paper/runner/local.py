"""Runs made here, one after the other or some at a time."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import torch

from entrec.paper.runner.apart import train_apart
from entrec.paper.runner.cell import Cell, Pool, opened
from entrec.paper.runner.notes import forget_failure, note_failure, note_made, outcome, tidy
from entrec.training.loop import DivergedError
from entrec.training.train import train

Ended = Literal["done", "failed", "not begun"]


class Made(NamedTuple):
    """Names of cells: those that ended now, those that failed now, and those that there was no time for."""

    done: list[str]
    failed: list[str]
    not_begun: list[str]


def named(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """The cells whose name is like one of the patterns (`*`, `?`), all where there is none.

    Raises:
        ValueError: a pattern is like no name.
    """
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in cells):
            raise ValueError(f"no run is named like {pattern!r}; there are {', '.join(cell.name for cell in cells)}")
    return [cell for cell in cells if not patterns or any(fnmatchcase(cell.name, pattern) for pattern in patterns)]


def left(cells: Sequence[Cell], pool: Pool, retry: bool = False) -> list[Cell]:
    """Cells without a run that has ended; with `retry` those that failed too."""
    wanted = ("not run", "failed") if retry else ("not run",)
    return [cell for cell in cells if outcome(pool.folder / cell.name).state in wanted]


def make(
    cells: Sequence[Cell],
    pool: Pool,
    jobs: int = 1,
    minutes: float | None = None,
    progress: Callable[[str], None] = lambda part: None,
) -> Made:
    """Train all cells, `jobs` at a time; one that fails is noted in its folder, and is no reason to stop the others.

    Args:
        cells: in the order in which they are begun.
        pool: where, and what all are given.
        jobs: processes. Several that share a GPU take turns and gain nothing, unless NVIDIA's MPS lets them run side by side.
        minutes: after which no other run is begun.
        progress: hears how far it is.

    Raises:
        ValueError, OSError: the data cannot be opened, which would fail every run.
    """
    until = None if minutes is None else time.time() + 60 * minutes
    if cells and minutes != 0:
        progress("opening the data")
        opened(pool.data)
    pool.folder.mkdir(parents=True, exist_ok=True)
    found: dict[Ended, list[str]] = {"done": [], "failed": [], "not begun": []}
    for number, (name, ended) in enumerate(_ended(cells, pool, jobs, until, progress), 1):
        found[ended].append(name)
        progress(f"{number} of {len(cells)} runs, the last {name}")
    return Made(found["done"], found["failed"], found["not begun"])


def _ended(
    cells: Sequence[Cell], pool: Pool, jobs: int, until: float | None, progress: Callable[[str], None]
) -> Iterator[tuple[str, Ended]]:
    """Names of cells as they end, and how."""
    if jobs == 1:
        for number, cell in enumerate(cells, 1):
            progress(f"{number} of {len(cells)}: {cell.name}")
            yield cell.name, trained(cell, pool, until)
        return
    # Spawned, as a process that has used a GPU cannot be forked.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _share_cores, (jobs,)) as workers:
        names = {workers.submit(trained, cell, pool, until): cell.name for cell in cells}
        for done in as_completed(names):
            yield names[done], done.result()


def _share_cores(jobs: int) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))


def trained(cell: Cell, pool: Pool, until: float | None = None) -> Ended:
    """Make one run, or what is left of one that was stopped, unless the time is over."""
    if until is not None and time.time() >= until:
        return "not begun"
    folder = pool.folder / cell.name
    forget_failure(folder)
    try:
        begun, given = (folder / "config.yaml").is_file(), {**pool.given, **cell.given}
        if given.get("devices", 1) > 1:
            start = time.perf_counter()
            train_apart(cell.method, pool.data, folder, begun, given)
        else:
            source = opened(pool.data)
            start = time.perf_counter()
            train(cell.method, data=source, out=folder, resume=begun, **given)
    except Exception as error:
        note_failure(folder, error)
        if isinstance(error, DivergedError) and not pool.keep:
            tidy(folder)  # it would diverge again from there; after any other error its checkpoint is what a retry goes on from
        return "failed"
    note_made(folder, time.perf_counter() - start, _on_gpu(given.get("device", "auto")))
    if not pool.keep:
        tidy(folder)
    return "done"


def _on_gpu(device: str) -> bool:
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())
