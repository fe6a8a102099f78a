"""How fast files become batches: opening a folder of many, and decoding and cropping photographs.

entrec bench data --files 200000 --out FILE.json
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from entrec.bench.photos import make_photos
from entrec.bench.results import Machine, machine
from entrec.data import Source, open_source
from entrec.data.files import Files
from entrec.training.feed import Feed
from entrec.views.augment import Augment
from entrec.views.recipe import recipe

_FOLDERS = 100
_SIDE = 128  # pixels: larger than what is loaded into memory whole
_REST = 2.5  # seconds after the last change, from which on the list of a folder is kept
_SIZE, _BATCH = 224, 32
_SEED = 0


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Args:
        files: in the folder that is opened.
        jpegs: of ImageNet's size, that are decoded.
        workers: processes that decode and crop, one after the other number.
    """

    files: int
    jpegs: int
    workers: tuple[int, ...]


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured.

    Args:
        settings: what was asked for.
        machine: where.
        opened: seconds to open the folder for the first time, which lists it.
        reopened: seconds to open it again.
        decoded: images per second that a single thread decodes.
        cropped: samples per second that so many processes decode and crop, two views of each.
    """

    settings: Settings
    machine: Machine
    opened: float
    reopened: float
    decoded: float
    cropped: dict[int, float]


def settings(files: int = 20_000, jpegs: int = 2048, workers: tuple[int, ...] = ()) -> Settings:
    """Check the choices; by default one process, and as many as there are cores."""
    if files < 1:
        raise ValueError(f"files must be at least 1, got {files}")
    if jpegs < 2 * _BATCH:
        raise ValueError(f"jpegs must be at least {2 * _BATCH}, which are two batches, got {jpegs}")
    workers = workers or tuple(dict.fromkeys((1, os.cpu_count() or 1)))
    if not 1 <= min(workers) <= max(workers) <= jpegs // _BATCH // 2:
        most = jpegs // _BATCH // 2
        raise ValueError(f"workers must be from 1 to {most}, of which each has two batches of {jpegs} files, got {workers}")
    return Settings(files, jpegs, workers)


def run(chosen: Settings, progress: Callable[[str], None] = lambda part: None) -> Benchmark:
    """Measure everything; `progress` hears what comes next."""
    where = machine(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        progress(f"making {chosen.files:,} files")
        many = make_many(folder / "many", chosen.files)
        time.sleep(_REST)
        progress("opening them")
        with _home(folder / "home"):
            opened, reopened = _seconds_to_open(many), _seconds_to_open(many)
        progress("making photographs")
        photos = open_source(make_photos(folder / "photos", chosen.jpegs))
        progress("decoding them")
        decoded = _decoded(photos)
        cropped = {}
        for workers in chosen.workers:
            progress(f"decoding and cropping them, {workers} at a time")
            cropped[workers] = _cropped(photos, workers)
    return Benchmark(chosen, where, opened, reopened, decoded, cropped)


def make_many(folder: Path, n: int) -> Path:
    """Write n files of one small picture, in sub-folders."""
    folder.mkdir(parents=True)
    Image.new("RGB", (_SIDE, _SIDE), (90, 120, 150)).save(folder / "0.jpg")
    content = (folder / "0.jpg").read_bytes()
    (folder / "0.jpg").unlink()
    for number in range(min(n, _FOLDERS)):
        (folder / f"part{number:02}").mkdir()
    for number in range(n):
        (folder / f"part{number % _FOLDERS:02}" / f"{number:08}.jpg").write_bytes(content)
    return folder


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Lists of folders are kept here for now, and the user's own are left alone."""
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["HOME"]
        else:
            os.environ["HOME"] = before


def _seconds_to_open(folder: Path) -> float:
    begin = time.perf_counter()
    open_source(folder)
    return time.perf_counter() - begin


def _decoded(photos: Source) -> float:
    files = photos.train
    assert isinstance(files, Files)  # as they are too large to be held
    files.decoded(0)  # imports the decoder
    begin = time.perf_counter()
    for place in range(len(files)):
        files.decoded(place)
    return len(files) / (time.perf_counter() - begin)


def _cropped(photos: Source, workers: int) -> float:
    augment = Augment(recipe("simclr", _SIZE, 2), photos.mean, photos.std)
    return feed_rate(Feed(photos, augment, _BATCH, _SEED, torch.device("cpu"), workers=workers), workers, _BATCH)


def feed_rate(feed: Feed, workers: int, batch: int) -> float:
    """Samples per second of an epoch's batches when they are only taken; NaN where each process has but one.

    From the last of the processes' first batches, with which they were started, to the last of their last ones: processes
    that began together end together, and what is counted from or to in between would be too much.
    """
    workers = max(1, workers)  # without any, this process does their work
    rounds = len(feed) // workers
    if rounds < 2:
        return math.nan
    times = [time.perf_counter() for _ in feed.epoch(0)]
    return (rounds - 1) * workers * batch / (times[rounds * workers - 1] - times[workers - 1])
