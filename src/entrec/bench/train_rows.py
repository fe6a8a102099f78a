"""What the benchmark of training is asked for, and what it finds."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from entrec.bench.bare import Way
from entrec.bench.results import Machine


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Args:
        run: the settings of the run, but for its batch size.
        batches: sizes of a batch.
        steps: of training that are timed, for each.
        image_size: of random images; None where the run's data are taken.
        jpegs: how many files of ImageNet's size to make and train on, in the place of images in memory; 0 for none.
    """

    run: dict[str, Any]
    batches: tuple[int, ...]
    steps: int
    image_size: int | None
    jpegs: int = 0


@dataclass(frozen=True)
class Row:
    """One batch size.

    Args:
        batch: samples in a step.
        ours: samples per second of training.
        unwatched: the same without the online probe, and with a row of metrics.csv for an epoch instead of for every few steps;
            None on a CPU, where runs scatter by more than that, and with files: there the parts tell.
        start: seconds of the run that were no steps: compiling above all; and of the one without rows and probe, which comes
            after it in the same process and finds all compiled; None where that is not run.
        saving: milliseconds for which an epoch's checkpoint holds training up, and after which it is on the disk.
        bare: those of the encoder alone, by way.
        parts: milliseconds of a step by part.
        replayed: whether the parts are of the graph that training launches, or of the same kernels launched one by one.
        peak_mb: the most memory that training had on a GPU, in 10^6 bytes.
        decoded: samples per second that the workers decode and crop when nothing else is done; None without files.
        workers: how many there are.
        turns: on a CPU, the rates of training and of the encoder before and after it, in the order they were taken; `ours` and
            `bare` are their medians.
    """

    batch: int
    ours: float
    unwatched: float | None
    start: tuple[float, float | None]
    saving: tuple[float, float]
    bare: dict[Way, float]
    parts: dict[str, float]
    peak_mb: float | None
    replayed: bool = False
    decoded: float | None = None
    workers: int = 0
    turns: tuple[tuple[float, float], ...] = ()

    def ratio(self, limit: Way) -> float | None:
        """Training's rate in parts of the encoder's, where that is known; the median of those of the turns, if there are."""
        if self.turns:
            return median(self.ratios)
        return self.ours / self.bare[limit] if limit in self.bare else None

    @property
    def ratios(self) -> list[float]:
        """Of the turns."""
        return [ours / encoder for ours, encoder in self.turns]

    def in_turns(self, turns: tuple[tuple[float, float], ...]) -> "Row":
        """The same with the rates that were taken in turns."""
        ours, encoder = (median(rates) for rates in zip(*turns, strict=True))
        return replace(self, ours=ours, bare={"eager": encoder}, turns=turns)

    @property
    def watching(self) -> float:
        """The share of a step that rows and the probe take; below zero where it is less than the times scatter by."""
        if self.unwatched is None:
            return (self.parts["probe"] + self.parts["logging"]) * self.ours / (1e3 * self.batch)
        return 1 - self.ours / self.unwatched

    @property
    def idle(self) -> float:
        """Milliseconds of a step in which the device waits, or does what no part accounts for."""
        return 1e3 * self.batch / self.ours - sum(self.parts.values())


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured, and the settings of the run as they were understood."""

    settings: Settings
    complete: dict[str, Any]
    machine: Machine
    limit: Way
    rows: list[Row]
