"""Runs made here, one after the other or some at a time."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import torch

from entrec.data import Held, Source
from entrec.files import require_writable
from entrec.paper.runner.apart import train_apart
from entrec.paper.runner.cell import Cell, Pool, opened, require_scored
from entrec.paper.runner.mps import side_by_side
from entrec.paper.runner.notes import forget_failure, note_failure, note_made, outcome, tidy
from entrec.paper.runner.processes import Died, shared_out
from entrec.paper.runner.watch import watched
from entrec.training import checkpoint
from entrec.training.claim import claimed
from entrec.training.loop import DivergedError
from entrec.training.run import Run
from entrec.training.train import train

_SHARED = Path("/dev/shm")  # where Linux has what processes share
# A run whose GPU broke has failed too; elsewhere is one that another process is making.
Ended = Literal["done", "failed", "not begun", "elsewhere", "device lost"]


class Made(NamedTuple):
    """Names of cells, by what became of them.

    Args:
        done: that ended now.
        failed: that failed now.
        not_begun: that there was no time for, or no device any more.
        elsewhere: that another process is making.
        stopped: why the others were not begun, where it was not for time.
        turns: why runs took turns on a GPU, where they were to share it.
    """

    done: Sequence[str] = ()
    failed: Sequence[str] = ()
    not_begun: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    stopped: str = ""
    turns: str = ""


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """Of its run."""


AnyCell = TypeVar("AnyCell", bound=Named)


def named(cells: Sequence[AnyCell], patterns: Sequence[str]) -> list[AnyCell]:
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
        jobs: processes. Several share a GPU by NVIDIA's MPS; where there is none they take turns, and gain little.
        minutes: after which no other run is begun.
        progress: hears how far it is, and the runs that are being made; also from another thread.

    Raises:
        ValueError, OSError: the data cannot be opened, or have no labels, which would fail every run; or a run that was stopped
            had another precision than is asked for.
    """
    until = None if minutes is None else time.time() + 60 * minutes
    require_writable(pool.folder)
    _require_same_precision(cells, pool)
    if cells and minutes != 0:
        progress("opening the data")
        require_scored(opened(pool.data))
    pool.folder.mkdir(parents=True, exist_ok=True)
    found: dict[Ended, list[str]] = {"done": [], "failed": [], "not begun": [], "elsewhere": [], "device lost": []}
    folders = [pool.folder / cell.name for cell in cells]
    with (
        side_by_side(min(jobs, len(cells)), str(pool.given.get("device", "auto"))) as turns,
        watched(folders, progress) as tell,
    ):
        tell(f"0 of {len(cells)} runs")
        begun = _here(cells, pool, until) if jobs == 1 else _in_processes(cells, pool, jobs, until)
        for number, (name, ended) in enumerate(begun, 1):
            found[ended].append(name)
            tell(f"{number} of {len(cells)} runs, the last {name}")
        lost = found["device lost"]
        if lost and jobs > 1:  # a process that dies takes a GPU from those it shares it with: theirs go on, once
            found["device lost"] = []
            for name, ended in _in_processes([cell for cell in cells if cell.name in lost], pool, jobs, until):
                found["device lost" if ended == "not begun" else ended].append(name)
                tell(f"{name} again, whose GPU was lost")
    lost = found["device lost"]
    stopped = f"the GPU failed in {lost[0]}, and a process cannot use it again" if lost and jobs == 1 else ""
    return Made(found["done"], [*found["failed"], *lost], found["not begun"], found["elsewhere"], stopped, turns)


def _require_same_precision(cells: Sequence[Cell], pool: Pool) -> None:
    """A run that was stopped goes on as it was begun; it would fail otherwise, and be a failed cell from then on."""
    asked = pool.given.get("precision")
    for folder in (pool.folder / cell.name for cell in cells) if asked is not None else ():
        if (folder / "config.yaml").is_file() and outcome(folder).state == "not run":
            before = Run(folder).config.get("precision")
            if before != asked:
                raise ValueError(
                    f"{folder.name} was stopped in the middle, and was begun {'with' if before else 'without'} a precision"
                    f"{f' of {before}' if before else ''}, not with {asked}: go on as it was, or remove {folder} to begin anew"
                )


def _here(cells: Sequence[Cell], pool: Pool, until: float | None) -> Iterator[tuple[str, Ended]]:
    """Names of cells as they end, and how; in this process, which must not go on with a GPU that failed it."""
    lost = False
    for cell in cells:
        ended: Ended = "not begun" if lost else trained(cell, pool, until)
        lost = lost or ended == "device lost"
        yield cell.name, ended


def _in_processes(cells: Sequence[Cell], pool: Pool, jobs: int, until: float | None) -> Iterator[tuple[str, Ended]]:
    """The same in processes of their own, of which one that dies, or loses its GPU, is replaced."""
    begins = bool(cells) and (until is None or time.time() < until)  # else nothing needs to be opened
    work = partial(trained, pool=pool, until=until, source=_shared(opened(pool.data)) if begins else None)
    for cell, ended in shared_out(cells, work, jobs, spent=lambda ended: ended == "device lost"):
        yield cell.name, _after_death(cell, pool, ended) if isinstance(ended, Died) else ended


def _shared(source: Source) -> Source | None:
    """Data that are whole in memory, which all processes then read the same of; None where each had better open its own.

    They go through the memory that processes share, of which a container may have little.
    """
    if not isinstance(source.train, Held):
        return None
    held = sum(split.images.nbytes for split in (source.train, source.test) if isinstance(split, Held))
    return source if not _SHARED.is_dir() or held < shutil.disk_usage(_SHARED).free / 2 else None


def _after_death(cell: Cell, pool: Pool, died: Died) -> Ended:
    """Note what a process that was killed could not."""
    folder = pool.folder / cell.name
    with claimed(folder) as ours:
        if not ours:  # it was another's before
            return "elsewhere"
        if outcome(folder).state == "not run":
            note_failure(folder, ChildProcessError(str(died)))
    return "done" if outcome(folder).state == "done" else "failed"


def trained(cell: Cell, pool: Pool, until: float | None = None, source: Source | None = None) -> Ended:
    """Make one run, or what is left of one that was stopped, unless it is made, another process makes it, or time is over.

    Args:
        cell: the run.
        pool: where, and on what.
        until: when no run is begun any more.
        source: the pool's data, where they are open already.
    """
    if until is not None and time.time() >= until:
        return "not begun"
    folder = pool.folder / cell.name
    with claimed(folder) as ours:
        if not ours:
            return "elsewhere"
        if outcome(folder).state == "done":  # since the cells that are left were counted, by another process
            return "done"
        forget_failure(folder)
        return _trained(cell, pool, source)


def _trained(cell: Cell, pool: Pool, source: Source | None) -> Ended:
    folder, given = pool.folder / cell.name, {**pool.given, **cell.given}
    try:
        seconds = _train(cell, pool, given, source)
    except Exception as error:
        note_failure(folder, error)
        if isinstance(error, DivergedError) and not pool.keep:
            tidy(folder)  # it would diverge again from there; after any other error its checkpoint is what a retry goes on from
        return "device lost" if _is_lost(error) else "failed"
    note_made(folder, seconds, _on_gpu(given.get("device", "auto")))
    if not pool.keep:
        tidy(folder)
    return "done"


def _train(cell: Cell, pool: Pool, given: dict[str, Any], source: Source | None) -> float:
    """Train; returns the seconds it took, with those up to the checkpoint that it went on from."""
    folder = pool.folder / cell.name
    begun, before = (folder / "config.yaml").is_file(), 0.0
    if begun and Run(folder).checkpoint.is_file():
        before = checkpoint.load(Run(folder).checkpoint).history.seconds
    if given.get("devices", 1) > 1:
        start = time.perf_counter()
        train_apart(cell.method, pool.data, folder, begun, given)
    else:
        source = opened(pool.data) if source is None else source
        start = time.perf_counter()
        train(cell.method, data=source, out=folder, resume=begun, **given)
    return before + time.perf_counter() - start


def _is_lost(error: Exception) -> bool:
    """Whether the GPU is lost to this process: after such an error each call to it fails, whatever it is."""
    return isinstance(error, getattr(torch, "AcceleratorError", ())) or "CUDA error" in str(error)


def _on_gpu(device: str) -> bool:
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())
