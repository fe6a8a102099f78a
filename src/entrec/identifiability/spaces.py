"""Where latents and projections live: the unit sphere, a box, or all of R^n."""

import math
from dataclasses import dataclass
from typing import Literal

from entrec import checks
from entrec.estimators.sphere import log_sphere_area
from entrec.identifiability import words

SpaceName = Literal["sphere", "box", "unbounded"]


@dataclass(frozen=True)
class Sphere:
    """The unit sphere in `dim` dimensions."""

    dim: int

    def __post_init__(self) -> None:
        """A sphere of less than a circle is two points."""
        checks.whole("dim", self.dim, 2)

    @property
    def log_volume(self) -> float:
        """The logarithm of its area."""
        return log_sphere_area(self.dim)


@dataclass(frozen=True)
class Box:
    """The cube [low, high]^dim; in the paper's tables the unit cube."""

    dim: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a box without an inside."""
        checks.whole("dim", self.dim, 1)
        if not self.low < self.high:
            raise ValueError(f"a box must have low < high, got {self.low} and {self.high}")

    @property
    def log_volume(self) -> float:
        """The logarithm of its volume."""
        return self.dim * math.log(self.high - self.low)


@dataclass(frozen=True)
class Unbounded:
    """All of R^dim, on which nothing is uniform."""

    dim: int

    def __post_init__(self) -> None:
        """At least a line."""
        checks.whole("dim", self.dim, 1)


Space = Sphere | Box | Unbounded
_SPACES: dict[SpaceName, type[Space]] = {"sphere": Sphere, "box": Box, "unbounded": Unbounded}


def space_named(name: str, dim: int) -> Space:
    """A space of the tables by its name."""
    words.choice("space", name, SpaceName)
    return _SPACES[name](dim)  # type: ignore[index]
