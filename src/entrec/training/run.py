"""A run's folder: what is in it, and how it is written without ever losing what was there."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from entrec.files import appearing

COLUMNS = (
    "step", "epoch", "rate", "loss", "entropy", "reconstruction", "er_bound", "probe_top1", "knn_top1", "samples_per_second",
    "held_out_entropy", "held_out_reconstruction", "held_out_er_bound", "effective_rank",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A training run on disk.

    Args:
        folder: config.yaml, metrics.csv, summary.json, encoder.safetensors, checkpoints/last.ckpt, tensorboard/.
    """

    folder: Path

    @property
    def config(self) -> dict[str, Any]:
        """The settings it ran with, the method's options among them."""
        found: dict[str, Any] = yaml.safe_load(_readable(self.folder / "config.yaml").read_text())
        return found

    @property
    def summary(self) -> dict[str, Any]:
        """What came out; there once the run has ended."""
        found: dict[str, Any] = json.loads(_readable(self.folder / "summary.json").read_text())
        return found

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv; what was not measured at a step is missing from its row."""
        with _readable(self.folder / "metrics.csv").open() as file:
            return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint, from which a run goes on."""
        return self.folder / "checkpoints" / "last.ckpt"

    @property
    def best(self) -> Path:
        """The checkpoint whose held-out ER bound was the highest, where it was to be kept (`keep="best-er"`)."""
        return self.folder / "checkpoints" / "best-er.ckpt"

    @property
    def kept(self) -> Path:
        """The checkpoint whose encoder the run is known by: the best where it was kept, or else the last."""
        return self.best if self.best.is_file() else self.checkpoint


def open_run(path: Path | str | Run) -> Run:
    """A run by its folder.

    Raises:
        FileNotFoundError: there is none.
    """
    if isinstance(path, Run):
        return path
    folder = Path(path)
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is no run: it holds no config.yaml (a run is what `entrec train --out` wrote)")
    return Run(folder)


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    with appearing(path) as unfinished:
        unfinished.write_text(text)


def write_config(run: Run, config: Mapping[str, Any]) -> None:
    """Write config.yaml."""
    write_text(run.folder / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))


def write_summary(run: Run, summary: Mapping[str, Any]) -> None:
    """Write summary.json."""
    write_text(run.folder / "summary.json", json.dumps(summary, indent=2) + "\n")


class Metrics:
    """The rows of metrics.csv as they come; a resumed run first drops the rows that it will write again."""

    def __init__(self, path: Path, up_to_step: int = 0) -> None:
        self._path = path
        rows: Sequence[str] = []
        if path.is_file() and up_to_step:
            lines = [line for line in path.read_text().splitlines()[1:] if line.count(",") == len(COLUMNS) - 1]
            rows = [line for line in lines if int(line.split(",")[0]) <= up_to_step]  # a line cut off by a crash has too few
        write_text(path, "\n".join([",".join(COLUMNS), *rows]) + "\n")

    def write(self, row: Mapping[str, float]) -> None:
        """Append a row; columns that it lacks stay empty."""
        line = ",".join(_number(row[key]) if key in row else "" for key in COLUMNS)
        with self._path.open("a") as file:
            file.write(line + "\n")


def _number(x: float) -> str:
    return str(x) if isinstance(x, int) else f"{x:.6g}"


def _readable(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: has the run ended?" if path.name != "config.yaml" else f"no {path}")
    return path
