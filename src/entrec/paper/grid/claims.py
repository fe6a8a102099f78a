"""What the runs say of the paper's claims: a word each, and the numbers behind it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from entrec.paper.grid.trials import Measured

Word = Literal["holds", "holds in part", "does not hold here", "not run"]


class Part(NamedTuple):
    """A part of a claim: what of, whether it is so (None where it was not run), and the numbers."""

    what: str
    so: bool | None
    numbers: str = ""


class Claim(NamedTuple):
    """A claim of the paper and its parts."""

    statement: str
    parts: Sequence[Part]

    @property
    def word(self) -> Word:
        """It holds where every part was run and is so; parts that are missing are never guessed."""
        known = [part.so for part in self.parts if part.so is not None]
        if not known:
            return "not run"
        if not any(known):
            return "does not hold here"
        return "holds" if all(known) and len(known) == len(self.parts) else "holds in part"

    @property
    def numbers(self) -> str:
        """All parts', in a line."""
        return "; ".join(f"{part.what}: {'not run' if part.so is None else part.numbers}" for part in self.parts)


def above(difference: Measured) -> bool | None:
    """Whether a difference is above 0, by two standard errors where seeds tell them; None without a run."""
    return None if not difference.by_seed else difference.mean > 2 * difference.error


def smaller_drop(what: str, own: tuple[Measured, Measured], er: tuple[Measured, Measured]) -> Part:
    """Whether ER's drop from the base to a variation is smaller than the original's.

    A variation in which all of the original's runs failed has no drop: that ER's did not is what the claim says then.

    Args:
        what: the part's name.
        own: accuracies of the original, at the base and in the variation.
        er: the same of ER.
    """
    if not all(x.by_seed or x.failed for x in (*own, *er)):
        return Part(what, None)
    drops = own[0] - own[1], er[0] - er[1]
    told = f"{drops[0].shown(2)} without, {drops[1].shown(2)} with ER"
    if not drops[1].by_seed:
        return Part(what, False, told)
    if not drops[0].by_seed:
        return Part(what, bool(own[0].by_seed), told)
    return Part(what, above(drops[0] - drops[1]), told)


def alike(what: str, first: Measured, second: Measured, points: float) -> Part:
    """Whether two accuracies differ by no more than that, on average."""
    difference = first - second
    so = None if not difference.by_seed else abs(difference.mean) <= points
    return Part(what, so, f"{first.shown(2)} and {second.shown(2)}, differing by {difference.shown(2, sign=True)}")
