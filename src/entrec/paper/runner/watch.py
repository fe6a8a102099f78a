"""How far the runs of a study are, read off their folders: alike for those of this process and of others."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread

from entrec.paper.runner.notes import outcome
from entrec.training.run import Run

_EVERY = 2.0  # seconds
_NAMED = 4  # runs; of more, how many
_TAIL = 8192  # bytes of metrics.csv that hold its last row for certain


@contextmanager
def watched(folders: Sequence[Path], progress: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """A function to say what has been done; to that is added, every few seconds, how far the runs are that are being made.

    Args:
        folders: of the runs.
        progress: hears it, also from another thread.
    """
    begin, lock, over, said = time.time(), Lock(), Event(), ""

    def tell(part: str) -> None:
        nonlocal said
        with lock:
            said = part
            progress(part)

    def watch() -> None:
        while not over.wait(_EVERY):
            now = being_made(folders, begin)
            with lock:
                if now and not over.is_set():
                    progress(f"{said}; {now}" if said else now)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        over.set()
        thread.join()


def being_made(folders: Sequence[Path], since: float) -> str:
    """Names and epochs of the runs that have written anything since a time and have not ended; nothing if there are none."""
    found = []
    for folder in folders:
        with suppress(OSError, ValueError):  # that run is just beginning, or ending, and the next look sees more
            if _written(folder) >= since and outcome(folder).state == "not run":
                found.append(f"{folder.name} {_epoch(folder)}")
    more = [f"{len(found) - _NAMED} more"] if len(found) > _NAMED else []
    return ", ".join([*found[:_NAMED], *more])


def _written(folder: Path) -> float:
    """When a run last began or wrote a row."""
    paths = (folder / "config.yaml", folder / "metrics.csv")
    return max((path.stat().st_mtime for path in paths if path.is_file()), default=0.0)


def _epoch(folder: Path) -> str:
    epochs = Run(folder).config["epochs"]
    path = folder / "metrics.csv"
    if not path.is_file():
        return "begins"
    with path.open("rb") as file:
        names = file.readline().decode().rstrip().split(",")
        file.seek(max(file.tell(), path.stat().st_size - _TAIL))
        rows = file.read().decode().split("\n")[:-1]  # behind the last line's end is half a row, or nothing
    if not rows:
        return "begins"
    return f"epoch {int(rows[-1].split(',')[names.index('epoch')]) + 1} of {epochs}"
