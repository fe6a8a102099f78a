"""Where a run's numbers go: metrics.csv, TensorBoard, Weights & Biases, and the terminal."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from entrec.training.run import Metrics

_FEW = ("loss", "er_bound")  # the numbers that are shown where there is no room for all


@dataclass(frozen=True)
class _FirstThatFits:
    """The first of some tables that the terminal is wide enough for, or else the last."""

    tables: list[Table]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(width=10_000)  # else a table says the width to which it would be cut
        fitting = (x for x in self.tables if console.measure(x, options=unbounded).maximum <= options.max_width)
        yield next(fitting, self.tables[-1])


class _Fitting(Progress):
    """A progress bar with as much beside it as the terminal has room for: Rich itself would cut columns down to nothing."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """All layouts, of which one is shown."""
        yield _FirstThatFits([self._laid_out(columns) for columns in self._layouts])

    def _laid_out(self, columns: tuple[ProgressColumn, ...]) -> Table:
        self.columns = columns
        return self.make_tasks_table(self.tasks)

    @cached_property
    def _layouts(self) -> tuple[tuple[ProgressColumn, ...], ...]:
        epoch, steps = TextColumn("{task.description}"), TextColumn("{task.completed}/{task.total}")
        numbers, few = TextColumn("{task.fields[numbers]}"), TextColumn("{task.fields[few]}")
        left = (TextColumn("left"), TimeRemainingColumn())
        return (
            (epoch, BarColumn(bar_width=20), steps, numbers, TimeElapsedColumn(), *left),
            (epoch, BarColumn(bar_width=10), steps, numbers, *left),
            (epoch, BarColumn(bar_width=10), steps, few, *left),
            (epoch, steps, few),
        )


class Log:
    """One row at a time to every place; only the first rank has one that writes.

    Args:
        folder: of the run.
        total: steps of the whole run.
        done: steps behind it, for a run that goes on.
        console: for the progress bar; None for silence.
        wandb: whether Weights & Biases gets the rows too.
    """

    def __init__(self, folder: Path, total: int, done: int, console: Console | None, wandb: bool = False) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import

        self._metrics = Metrics(folder / "metrics.csv", done)
        self._board: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1 if done else None)
        self._wandb: Any = _wandb(folder) if wandb else None
        self._console = console
        self._latest: dict[str, float] = {}
        silent = console is None or not console.is_terminal
        self._progress = _Fitting(console=console, disable=silent, transient=True)
        self._task = self._progress.add_task("", total=total, completed=done, numbers="", few="")
        self._progress.start()

    def row(self, row: Mapping[str, float], epochs: int) -> None:
        """Write what was measured at a step."""
        self._metrics.write(row)
        step = int(row["step"])
        for key, value in row.items():
            if key not in ("step", "epoch"):
                self._board.add_scalar(key, value, step)
        if self._wandb is not None:
            self._wandb.log(dict(row), step=step)
        self._latest |= row  # a score's row has no loss, nor the next one a score
        numbers, few = in_words(self._latest), in_words({key: self._latest[key] for key in _FEW if key in self._latest})
        epoch = f"epoch {int(row['epoch']) + 1}/{epochs}"
        self._progress.update(self._task, completed=step, description=epoch, numbers=numbers, few=few)

    def say(self, text: str) -> None:
        """A line above the progress bar."""
        if self._console is not None:
            self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Flush and stop."""
        self._progress.stop()
        self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def in_words(row: Mapping[str, float]) -> str:
    """The numbers of a row as the terminal shows them; entropy, reconstruction and bound in nats."""
    shown = {"loss": "loss", "entropy": "H", "reconstruction": "rec", "er_bound": "bound"}
    parts = [f"{name} {row[key]:.2f}" for key, name in shown.items() if key in row and math.isfinite(row[key])]
    parts += [f"{name} {row[key]:.1%}" for key, name in (("probe_top1", "probe"), ("knn_top1", "kNN")) if key in row]
    return "  ".join(parts)


def _wandb(folder: Path) -> Any:
    import wandb

    # The same run's id when it goes on; of another folder of that name another's.
    ident = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=8).hexdigest()
    return wandb.init(project="entrec", name=folder.name, dir=str(folder), id=ident, resume="allow")
