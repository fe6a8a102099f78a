"""Where a run's numbers go: metrics.csv, TensorBoard, Weights & Biases, and the terminal."""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from entrec.training.run import Metrics


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
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[numbers]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._progress = Progress(*columns, console=console, disable=console is None or not console.is_terminal, transient=True)
        self._task = self._progress.add_task("", total=total, completed=done, numbers="")
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
        self._progress.update(
            self._task, completed=step, description=f"epoch {int(row['epoch']) + 1}/{epochs}", numbers=in_words(row)
        )

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
