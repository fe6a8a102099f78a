"""Numbers of a setting's runs, over seeds: means, standard deviations, differences."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from entrec.paper.grid.presets import Preset
from entrec.paper.grid.setting import Setting
from entrec.paper.runner import MADE, outcome
from entrec.training.run import Run

NOT_RUN = "not run"


class Measured(NamedTuple):
    """A number of a setting, for each seed that has one, and how many runs failed."""

    by_seed: dict[int, float]
    failed: int = 0

    @property
    def mean(self) -> float:
        """Over seeds; NaN without any."""
        return fmean(self.by_seed.values()) if self.by_seed else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds; NaN for fewer than two."""
        return stdev(self.by_seed.values()) if len(self.by_seed) > 1 else math.nan

    @property
    def error(self) -> float:
        """Of the mean: the standard error, which a single seed does not tell."""
        return self.deviation / math.sqrt(len(self.by_seed)) if len(self.by_seed) > 1 else 0.0

    def __sub__(self, other: "Measured") -> "Measured":
        """Seed by seed, for those that both have: these share their first weights and their order of images."""
        common = {seed: x - other.by_seed[seed] for seed, x in self.by_seed.items() if seed in other.by_seed}
        return Measured(common, self.failed + other.failed)

    def shown(self, digits: int = 1, sign: bool = False, beside: float | None = None) -> str:
        """As a table has it: mean ± standard deviation (seeds), failures, and a published number beside it."""
        published = "" if beside is None else f" [{beside:{'+' if sign else ''}.2f}]"
        lost = f"failed in {self.failed} of {self.failed + len(self.by_seed)}" if self.failed else ""
        if not self.by_seed:
            return (lost or NOT_RUN) + published
        spread = f" ± {self.deviation:.{digits}f} ({len(self.by_seed)})" if len(self.by_seed) > 1 else ""
        number = f"{self.mean:{'+' if sign else ''}.{digits}f}{spread}"
        return (f"{number}, {lost}" if lost else number) + published


@dataclass(frozen=True)
class Trials:
    """All runs of a setting that a pool holds."""

    setting: Setting
    name: str
    runs: dict[int, Run]
    failures: dict[int, str]

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
        """Of each summary; runs whose summary lacks it count as failed."""
        found = {seed: read(summary) for seed, summary in self.summaries.items()}
        known = {seed: float(x) for seed, x in found.items() if x is not None}
        return Measured(known, len(self.failures) + len(found) - len(known))

    @property
    def accuracy(self) -> Measured:
        """The linear probe, in percent."""
        return self.number(lambda summary: None if summary["linear_top1"] is None else 100 * summary["linear_top1"])

    @property
    def verdicts(self) -> list[str]:
        """What the lens said at the end, of each seed in order; failed runs have none."""
        return [str(summary["verdict"]) for _, summary in sorted(self.summaries.items())]


class Pooled:
    """The runs in a folder, by setting."""

    def __init__(self, folder: Path, preset: Preset) -> None:
        self.folder, self.preset = folder, preset
        self._known: dict[Setting, Trials] = {}

    def __call__(self, *args: Any, **changes: Any) -> Trials:
        """The trials of a setting, or of the one with these fields."""
        setting = args[0] if isinstance(args[0], Setting) else Setting(*args, **changes)
        if setting not in self._known:
            self._known[setting] = self._read(setting)
        return self._known[setting]

    def _read(self, setting: Setting) -> Trials:
        name = setting.name(self.preset)
        runs, failures = {}, {}
        for folder in sorted(self.folder.glob(f"{name}-seed[0-9]*")):
            seed, found = int(folder.name.removeprefix(f"{name}-seed")), outcome(folder)
            if found.state == "done":
                runs[seed] = Run(folder)
            elif found.state == "failed":
                failures[seed] = found.reason
        return Trials(setting, name, runs, failures)


def made(run: Run) -> dict[str, Any]:
    """On what a run was made; nothing where it was not noted."""
    path = run.folder / MADE
    return json.loads(path.read_text()) if path.is_file() else {}
