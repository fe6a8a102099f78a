"""A run's folder: what is in it, and how it is written without ever losing what was there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from entrec.files import appearing

COLUMNS = (
    "step", "epoch", "rate", "loss", "entropy", "reconstruction", "er_bound", "probe_top1", "knn_top1", "samples_per_second",
    "held_out_entropy", "held_out_reconstruction", "held_out_er_bound", "effective_rank",
    "held_out_er_ceiling", "held_out_infonce_bound", "held_out_infonce_ceiling", "held_out_nearer", "held_out_alignment",
    "held_out_uniformity", "held_out_spread", "held_out_conditional",
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
        return _mapping(self.folder / "config.yaml", _whole_yaml)

    @property
    def summary(self) -> dict[str, Any]:
        """What came out; there once the run has ended.

        `held_out` and what begins with it, `infonce_bound`, `effective_rank` and the verdicts are read off the split that
        `looked_at` names: `test`, or `train` where the data have no test split.
        """
        return _mapping(self.folder / "summary.json", json.loads)

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv; what was not measured at a step is missing from its row, and so is a row half written.

        Raises:
            ValueError: a line before the last is damaged.
        """
        path = _readable(self.folder / "metrics.csv")
        names, lines = _table(path)
        if lines and len(lines[-1]) < len(names):
            lines.pop()
        return [_numbers(path, place, names, cells) for place, cells in enumerate(lines, 2)]

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint, from which a run goes on."""
        return self.folder / "checkpoints" / "last.ckpt"

    @property
    def best(self) -> Path:
        """The checkpoint whose ER bound, as the lens saw it, was the highest; where it was to be kept (`keep="best-er"`)."""
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
        unfinished.write_text(text, encoding="utf-8")


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
        names, lines = _table(path) if path.is_file() and up_to_step else ([], [])
        # By name: the run may have been begun by a version with other columns. A line cut off by a crash has too few cells.
        before = [dict(zip(names, cells, strict=True)) for cells in lines if len(cells) == len(names)]
        rows = [",".join(row.get(key, "") for key in COLUMNS) for row in before if int(row["step"]) <= up_to_step]
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


def _mapping(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """What a file says by name; of one that is damaged, it is said which."""
    try:
        found = parse(_readable(path).read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is damaged, or was cut off: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is {'empty' if found is None else 'damaged, or was cut off'}: it holds nothing by name")
    return found


def _whole_yaml(text: str) -> Any:
    if text and not text.endswith("\n"):
        raise ValueError("its last line has no end")  # and could hold half a number
    return yaml.safe_load(text)


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of a table's columns, and the cells of each line that has an end: one without may hold half a number."""
    text = path.read_bytes().decode("utf-8", "replace")
    names, *lines = [line.split(",") for line in text[: text.rfind("\n") + 1].splitlines()] or [[]]
    return names, lines


def _numbers(path: Path, place: int, names: list[str], cells: list[str]) -> dict[str, float]:
    try:
        found = {name: float(cell) for name, cell in zip(names, cells, strict=True) if cell}
    except ValueError:
        found = {}
    if not {"step", "epoch"} <= found.keys():
        raise ValueError(f"{path} is damaged: its line {place} is no row of numbers with a step and an epoch")
    return found
