"""What is known of a run: all of it where it has ended, or else the latest that it has written."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from entrec.report.names import names_of
from entrec.training import checkpoint
from entrec.training.run import Run

# What a checkpoint that is damaged may raise; which one depends on where the first wrong byte is.
UNREADABLE = (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError)


class Known(NamedTuple):
    """A run as the page shows it.

    Args:
        name: that no other run on the page has.
        config: its settings.
        rows: of metrics.csv.
        numbers: its summary; of a run that has not ended, the means over the latest epoch in which each was measured.
        ended: whether it has.
        verdicts: the lens's in turn, with the number of epochs behind each.
        trained_on: the lens looked at images that were trained on, as there is no test split; runs of older versions do not
            say so.
    """

    name: str
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, float]]
    numbers: Mapping[str, Any]
    ended: bool
    verdicts: Sequence[tuple[int, str]]
    trained_on: bool = False

    @property
    def so_far(self) -> str:
        """How far a run has come that has not ended."""
        if not self.rows:
            return "not ended, no numbers yet"
        epochs = self.config.get("epochs")
        return f"not ended, epoch {int(self.rows[-1]['epoch']) + 1}{f' of {epochs}' if epochs else ''}"


def known(runs: Sequence[Run]) -> list[Known]:
    """What is known of each run.

    Raises:
        ValueError: a file of a run is damaged.
    """
    return [_known(name, run) for name, run in zip(names_of(runs), runs, strict=True)]


def _known(name: str, run: Run) -> Known:
    rows = run.metrics
    if (run.folder / "summary.json").is_file():
        summary = run.summary
        verdicts = [(one["epochs"], one["verdict"]) for one in summary.get("verdicts") or ()]
        return Known(name, run.config, rows, summary, True, verdicts, summary.get("looked_at") == "train")
    looks, trained_on = _looks(run)
    numbers = {**_latest(rows), "verdict": looks[-1][1] if looks else None}
    return Known(name, run.config, rows, numbers, False, looks, trained_on)


def whereof(runs: Sequence[Known]) -> str:
    """What the lens's numbers are of, in a title: images that were held out, or trained on where there is no test split."""
    if not any(run.trained_on for run in runs):
        return "held out"
    return "on training images" if all(run.trained_on for run in runs) else "held out or on training images"


def _latest(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number over the latest epoch in which it was measured."""
    found = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        epoch = max(row["epoch"] for row in rows if key in row)
        found[key] = fmean(row[key] for row in rows if key in row and row["epoch"] == epoch)
    return found


def _looks(run: Run) -> tuple[list[tuple[int, str]], bool]:
    """What the lens has seen until the last checkpoint, and whether on training images; nothing where none can be read."""
    try:
        found = checkpoint.load(run.checkpoint)
    except UNREADABLE:
        return [], False
    return [(epochs, verdict) for epochs, verdict, _ in found.history.looks], found.facts.get("held_out") is False
