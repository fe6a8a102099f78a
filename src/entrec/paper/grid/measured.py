"""A number over seeds: its mean, its standard deviation, and the runs that have none."""

import math
from collections.abc import Mapping
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtrit

NOT_RUN = "not run"
CONFIDENCE = 0.95


class Measured(NamedTuple):
    """A number of a setting, for each seed that has one, and why the others have none.

    Args:
        by_seed: the numbers.
        diverged: seeds of runs whose numbers were none any more: this says something of the setting.
        broken: seeds of runs that failed in another way, or whose files are damaged, and how: this says nothing of it.
        between: it is a difference between runs, as `-` makes it, and not a number of each.
    """

    by_seed: Mapping[int, float]
    diverged: frozenset[int] = frozenset()
    broken: Mapping[int, str] = {}
    between: bool = False

    @property
    def failed(self) -> frozenset[int]:
        """Seeds without a number though they were run."""
        return self.diverged | frozenset(self.broken)

    @property
    def seeds(self) -> frozenset[int]:
        """All that were run."""
        return self.failed | frozenset(self.by_seed)

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
        """Of the mean: the standard error.

        A single seed does not tell it. What one run shows of itself is taken as it is; what lies between two runs may be all
        chance, as other seeds would have made either of them better or worse.
        """
        if len(self.by_seed) > 1:
            return self.deviation / math.sqrt(len(self.by_seed))
        return math.inf if self.between and self.by_seed else 0.0

    @property
    def margin(self) -> float:
        """How far from the mean the truth may be, with 95 % confidence: Student's t times the standard error.

        Two seeds may lie close together by chance: t is 12.7 for two, 4.3 for three, and nears 2 for many.
        """
        freedom = len(self.by_seed) - 1
        return self.error * float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) if freedom > 0 else self.error

    def __sub__(self, other: "Measured") -> "Measured":
        """Seed by seed, for those that both have: these share their first weights and their order of images.

        A seed that the other was run with has failed where either of the two has.
        """
        common = {seed: x - other.by_seed[seed] for seed, x in self.by_seed.items() if seed in other.by_seed}
        broken = {seed: reason for seed, reason in {**self.broken, **other.broken}.items() if seed in other.seeds}
        diverged = {seed for seed in self.diverged | other.diverged if seed in other.seeds and seed not in broken}
        return Measured(common, frozenset(diverged), broken, between=True)

    def __neg__(self) -> "Measured":
        """With the other sign."""
        return self._replace(by_seed={seed: -x for seed, x in self.by_seed.items()})

    @property
    def loss(self) -> str:
        """In words, how many runs failed; nothing where none did."""
        return f"failed in {len(self.failed)} of {len(self.seeds)}" if self.failed else ""

    def shown(self, digits: int = 1, sign: bool = False, beside: float | None = None) -> str:
        """As a table has it: mean ± standard deviation (seeds), failures, and a published number beside it."""
        published = "" if beside is None else f" [{beside:{'+' if sign else ''}.2f}]"
        if not self.by_seed:
            return (self.loss or NOT_RUN) + published
        spread = f" ± {self.deviation:.{digits}f} ({len(self.by_seed)})" if len(self.by_seed) > 1 else ""
        number = f"{self.mean:{'+' if sign else ''}.{digits}f}{spread}"
        return (f"{number}, {self.loss}" if self.loss else number) + published
