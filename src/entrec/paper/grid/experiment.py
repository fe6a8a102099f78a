"""What a name of `entrec paper` is: which settings it trains, and what it makes of their runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from entrec.paper.grid.claims import Claim
from entrec.paper.grid.presets import Preset
from entrec.paper.grid.setting import Setting
from entrec.paper.grid.trials import Pooled
from entrec.paper.runner import Cell


class Wanted(NamedTuple):
    """Settings, those that carry a claim first; and all the others."""

    claims: list[Setting]
    further: list[Setting]

    @property
    def all(self) -> list[Setting]:
        """Each once."""
        return list(dict.fromkeys([*self.claims, *self.further]))

    def cells(self, preset: Preset, seeds: int) -> list[Cell]:
        """In the order in which they are run: the claims' settings with seed 0, then with seed 1, ...; then the others."""
        claims = list(dict.fromkeys(self.claims))
        further = [setting for setting in self.all if setting not in claims]
        return [setting.cell(preset, seed) for part in (claims, further) for seed in range(seeds) for setting in part]


@dataclass(frozen=True)
class Table:
    """A table: its title, its columns, its rows of text, and what a reader must know, above it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> list[str]:
        """As lines; the first column to the left, the others to the right."""
        lines = [f"## {self.title}", "", *([self.note, ""] if self.note else [])]
        lines += ["| " + " | ".join(self.columns) + " |", "|---|" + "---:|" * (len(self.columns) - 1)]
        return [*lines, *("| " + " | ".join(row) + " |" for row in self.rows), ""]


@dataclass(frozen=True)
class Found:
    """What was made of the runs: tables, claims, figures, and further numbers for results.json.

    A figure is its path and what it shows: a sentence for those who do not see it, and what all should know.
    """

    tables: list[Table]
    claims: list[Claim]
    figures: list[tuple[Path, str]]
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A name of `entrec paper`.

    Args:
        title: of its table.
        wanted: its settings under a preset.
        found: from the runs and a folder for figures to what they show.
    """

    title: str
    wanted: Callable[[Preset], Wanted]
    found: Callable[[Pooled, Path], Found]
