"""The runs of a setting, over seeds, and what can be read off them."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from entrec.paper.grid.measured import NOT_RUN, Measured
from entrec.paper.grid.presets import Preset
from entrec.paper.grid.setting import Setting
from entrec.paper.runner import MADE, outcome
from entrec.training.run import Run

Rows = Sequence[Mapping[str, float]]
# What is read of a run's files, which may have been cut, edited or written by another version.
_SUMMARY = ("epochs", "held_out_entropy", "knn_top1", "linear_top1", "verdict", "versions", "wall_seconds")
_CONFIG, _POINTS = ("method", "device"), ("kappa", "dim")
_OF_METHOD = {"dino": ("codes", "bottleneck", "kappa"), "swav": ("prototypes",), "deepcluster": ("clusters",)}


class Ended(NamedTuple):
    """Runs of a name, by seed: those that can be read, why some diverged, and why others failed."""

    runs: dict[int, Run]
    diverged: dict[int, str]
    broken: dict[int, str]

    @property
    def failures(self) -> dict[int, str]:
        """Why runs failed, by seed."""
        return dict(sorted({**self.diverged, **self.broken}.items()))

    def measured(self, found: Mapping[int, float | None], lacking: str) -> Measured:
        """A number of each run that can be read; those without one count as broken, with what they lack."""
        known = {seed: float(x) for seed, x in found.items() if is_number(x)}
        return Measured(known, frozenset(self.diverged), {**self.broken, **dict.fromkeys(found.keys() - known, lacking)})


@dataclass(frozen=True)
class Trials:
    """All runs of a setting that a pool holds.

    Args:
        setting: theirs.
        name: of their folders, but for the seed.
        ended: how each run ended.
    """

    setting: Setting
    name: str
    ended: Ended

    @property
    def runs(self) -> dict[int, Run]:
        """Those that can be read, by seed."""
        return self.ended.runs

    @property
    def diverged(self) -> dict[int, str]:
        """Why, of runs whose numbers were none any more."""
        return self.ended.diverged

    @property
    def failures(self) -> dict[int, str]:
        """Why runs failed, by seed."""
        return self.ended.failures

    @property
    def state(self) -> str:
        """Done where a run of it is, or else failed or not run."""
        return "done" if self.runs else "failed" if self.failures else NOT_RUN

    @cached_property
    def summaries(self) -> dict[int, dict[str, Any]]:
        """Of each seed."""
        return {seed: run.summary for seed, run in self.runs.items()}

    @cached_property
    def rows(self) -> dict[int, list[dict[str, float]]]:
        """Of each seed's metrics.csv."""
        return {seed: run.metrics for seed, run in self.runs.items()}

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings of its runs, in which only the seed differs."""
        return next(iter(self.runs.values())).config

    def number(self, read: Callable[[dict[str, Any]], float | None]) -> Measured:
        """Of each summary; runs whose summary lacks it count as broken."""
        return self.ended.measured(
            {seed: read(summary) for seed, summary in self.summaries.items()}, "summary.json lacks a number"
        )

    def over_training(self, read: Callable[[Rows], float | None]) -> Measured:
        """Of each metrics.csv; runs whose rows lack it count as broken."""
        return self.ended.measured({seed: read(rows) for seed, rows in self.rows.items()}, "metrics.csv lacks a number")

    @property
    def accuracy(self) -> Measured:
        """The linear probe, in percent."""
        return self.number(lambda summary: 100 * x if is_number(x := summary["linear_top1"]) else None)

    @property
    def verdicts(self) -> dict[int, str]:
        """What the lens said at the end, of each seed in order; failed runs have none."""
        return {seed: str(summary["verdict"]) for seed, summary in sorted(self.summaries.items())}

    @property
    def said(self) -> str:
        """The lens' verdicts, each once; without any, what became of the runs."""
        return ", ".join(dict.fromkeys(self.verdicts.values())) or ("diverged" if self.diverged else self.state)


class Pooled:
    """The runs in a folder, by setting."""

    def __init__(self, folder: Path, preset: Preset) -> None:
        self.folder, self.preset = folder, preset
        self._known: dict[Setting, Trials] = {}

    def __call__(self, *args: Any, **changes: Any) -> Trials:
        """The trials of a setting, or of the one with these fields."""
        setting = args[0] if isinstance(args[0], Setting) else Setting(*args, **changes)
        if setting not in self._known:
            name = setting.name(self.preset)
            self._known[setting] = Trials(setting, name, ended(self.folder, name))
        return self._known[setting]


def ended(folder: Path, name: str) -> Ended:
    """The runs NAME-seedN in a folder that have ended, one way or another."""
    found = Ended({}, {}, {})
    for seed, path in _seeds(folder, name):
        ending = outcome(path)
        if ending.state == "failed":
            (found.diverged if ending.diverged else found.broken)[seed] = ending.reason or "nothing was noted"
        elif ending.state == "done":
            damage = damage_of(Run(path))
            found.broken.update({seed: damage} if damage else {})
            found.runs.update({} if damage else {seed: Run(path)})
    return found


def _seeds(folder: Path, name: str) -> Iterator[tuple[int, Path]]:
    """Folders of a name in the order of their seeds; any that are called otherwise are somebody's own."""
    found = ((re.fullmatch(rf"{re.escape(name)}-seed(\d+)", path.name), path) for path in folder.glob(f"{name}-seed*"))
    yield from sorted((int(match[1]), path) for match, path in found if match)


def is_number(x: object) -> TypeGuard[float]:
    """A file that was cut or edited may hold anything."""
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def damage_of(run: Run) -> str:
    """What is wrong with the files of a run that has ended, in a line; nothing where all that is read of them is there."""
    try:
        summary, rows, config = run.summary, run.metrics, run.config
        made(run)
    except (ValueError, OSError) as error:
        said = " ".join(str(error).split())
        return f"damaged: {said.replace(f'{run.folder}/', '').replace(' is damaged: ', ': ')}"
    lacking = [f"summary.json lacks {key}" for key in _SUMMARY if key not in summary]
    options = _OF_METHOD.get(str(config.get("method")), _POINTS)
    lacking += [f"config.yaml lacks {key}" for key in (*_CONFIG, *options) if key not in config]
    if lacking:
        return f"damaged: {', '.join(lacking)}"
    if not rows:
        return "damaged: metrics.csv holds no row"
    ends, epochs = int(max(row["epoch"] for row in rows)) + 1, summary["epochs"]
    return f"damaged: metrics.csv ends in epoch {ends} of {epochs}" if ends != epochs else ""


def made(run: Run) -> dict[str, Any]:
    """On what a run was made; nothing where it was not noted.

    Raises:
        ValueError: the note is damaged.
    """
    path = run.folder / MADE
    return named_values(path) if path.is_file() else {}


def named_values(path: Path) -> dict[str, Any]:
    """What a JSON file says by name.

    Raises:
        ValueError: it is damaged, and which.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it holds nothing by name")
    return found
