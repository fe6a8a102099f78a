"""How fast `entrec train` is, by a run of it."""

import gc
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from entrec.data import Source
from entrec.training.settings import Settings
from entrec.training.train import train

NEVER = 10**6  # an epoch, or a step, that does not come


class Trained(NamedTuple):
    """Samples per second, the median over the rows of a run's later half; seconds that were no steps; and its peak memory."""

    rate: float
    start: float
    peak_mb: float | None


def trained(wanted: Settings, source: Source, device: torch.device) -> Trained:
    """A run to its end, in a folder that is gone afterwards."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        gc.collect()  # what the last size has left
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    given = {key: value for key, value in wanted.flat().items() if key not in ("method", "data") and value is not None}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        found = train(wanted.method, data=source, out=Path(folder) / "run", **given)
        seconds = time.perf_counter() - begin
        rows = [row for row in found.metrics if "samples_per_second" in row]
    rate = median(row["samples_per_second"] for row in rows[len(rows) // 2 :])
    peak = torch.cuda.max_memory_allocated(device) / 1e6 if on_gpu else None
    timed = [(row["step"], row["samples_per_second"]) for row in rows]
    return Trained(rate, seconds - _stepping(timed, given["batch_size"], rate), peak)


def _stepping(rows: Sequence[tuple[float, float]], batch: int, rate: float) -> float:
    """Seconds of steps up to rows (step, samples per second): as they were, but those slower than the rate as at the rate.

    What the first ones took more is compiling. Those that were faster count as they were, or on a busy machine more time than
    the run took would have been steps.

    >>> _stepping([(1, 10.0), (11, 100.0), (21, 200.0)], batch=10, rate=100.0)
    1.6
    """
    before = (0.0, *(step for step, _ in rows))
    return sum((step - last) * batch / max(own, rate) for (step, own), last in zip(rows, before, strict=False))


def unwatched(wanted: Settings, source: Source, device: torch.device) -> Trained:
    """The same without the online probe, and with a row of metrics.csv for an epoch."""
    return trained(replace(wanted, log_every=NEVER), replace(source, classes=()), device)
