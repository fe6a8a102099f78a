"""What the runs say of the paper's claims: a word each, and the numbers behind it.

One rule throughout: something is so where a 95 % confidence interval of the mean over seeds does not reach the limit, not so
where it is as clearly on the other side, and not decided in between. A single seed has no interval: of a difference between
runs it decides nothing, and where it speaks of a run alone (its entropy, what the lens said, that it diverged) it is taken at
its word and named beside it.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from entrec.paper.grid.measured import NOT_RUN, Measured

State = Literal["so", "not so", "not decided", "failed", "not run"]
Word = Literal[
    "holds", "holds in part", "does not hold in part", "does not hold here", "not decided", "not run", "failed"
]  # fmt: skip
ENOUGH = 3  # seeds; with fewer, a word says how many


class Part(NamedTuple):
    """A part of a claim.

    Args:
        what: it is about.
        state: what the runs say of it.
        numbers: behind it.
        seeds: how many speak; None where no run is needed.
    """

    what: str
    state: State
    numbers: str = ""
    seeds: int | None = None

    @property
    def decided(self) -> bool:
        """Whether the runs tell."""
        return self.state in ("so", "not so")


class Claim(NamedTuple):
    """A claim of the paper and its parts."""

    statement: str
    parts: Sequence[Part]

    @property
    def verdict(self) -> Word:
        """It holds where every part was run and is so; parts that are missing are never guessed.

        In part it holds where a part is so, whatever the others, and does not hold where a part is not so and others are not
        decided.
        """
        states = [part.state for part in self.parts]
        if "so" in states:
            return "holds" if set(states) == {"so"} else "holds in part"
        if "not so" in states:
            return "does not hold in part" if "not decided" in states else "does not hold here"
        unknown: tuple[Word, ...] = ("not decided", "failed", "not run")
        return next(word for word in unknown if word in states)

    @property
    def seeds(self) -> int | None:
        """The fewest that decide a part; where none is decided, the fewest that failed to."""
        tried = [part for part in self.parts if part.decided] or [part for part in self.parts if part.state == "not decided"]
        return min((part.seeds for part in tried if part.seeds is not None), default=None)

    @property
    def word(self) -> str:
        """The verdict, and where few seeds speak how many."""
        if self.seeds is None or self.seeds >= ENOUGH:
            return self.verdict
        return f"{self.verdict} ({self.seeds} seed{'' if self.seeds == 1 else 's'})"

    @property
    def numbers(self) -> str:
        """All parts', in a line; where they do not say the same, what each says."""
        said = {part: part.state for part in self.parts if part.decided or part.state == "not decided"}
        differing = len(set(said.values())) > 1
        told = (f" ({said[part]})" if differing and part in said else "" for part in self.parts)
        return "; ".join(f"{part.what}{state}: {part.numbers or NOT_RUN}" for part, state in zip(self.parts, told, strict=True))

    def markdown(self) -> str:
        """A table's row; a bar in a failure's reason would end its cell."""
        cells = (self.statement, f"**{self.word}**", self.numbers)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def facts(self) -> dict[str, Any]:
        """As results.json has them."""
        return {"statement": self.statement, "verdict": self.word, "parts": [part._asdict() for part in self.parts]}


def over(measured: Measured, limit: float = 0.0) -> State:
    """Whether a mean is above a limit, with 95 % confidence; not decided without a number."""
    low, high = measured.mean - measured.margin, measured.mean + measured.margin
    return "so" if low > limit else "not so" if high <= limit else "not decided"


def at_most(measured: Measured, limit: float) -> State:
    """Whether a mean is no more than a limit, with 95 % confidence; not decided without a number."""
    low, high = measured.mean - measured.margin, measured.mean + measured.margin
    return "so" if high <= limit else "not so" if low > limit else "not decided"


def both(*states: State) -> State:
    """So where all are, not so where one is not."""
    return "not so" if "not so" in states else "so" if set(states) == {"so"} else "not decided"


def either(*states: State) -> State:
    """So where one is, not so where none is."""
    return "so" if "so" in states else "not so" if set(states) == {"not so"} else "not decided"


def missing(what: str, measured: Measured) -> Part:
    """A part without a number: not run, or why runs failed."""
    reasons = [*(["diverged"] if measured.diverged else []), *dict.fromkeys(measured.broken.values())]
    return Part(what, "failed", f"failed: {'; '.join(reasons)}") if reasons else Part(what, "not run")


def judged(what: str, of: Measured, state: State, numbers: str, diverged: State | None = None) -> Part:
    """A part that is decided by a number.

    Args:
        what: it is about.
        of: the number.
        state: what it says, where there is one.
        numbers: to print.
        diverged: what to say where some runs diverged, whatever the others did. Those that failed in another way speak neither
            for a claim nor against it.
    """
    if diverged is not None and of.diverged:
        return Part(what, diverged, numbers, len(of.by_seed) + len(of.diverged))
    return Part(what, state, numbers, len(of.by_seed)) if of.by_seed else missing(what, of)


def above(what: str, difference: Measured, numbers: str) -> Part:
    """Whether a difference between runs is above 0."""
    return judged(what, difference, over(difference), numbers)


def smaller_drop(what: str, own: tuple[Measured, Measured], er: tuple[Measured, Measured]) -> Part:
    """Whether ER's drop from the base to a variation is smaller than the original's, for the seeds that all four have.

    A variation in which ER diverges speaks against it. One in which all of the original's runs diverge has no drop: that ER's
    did not is what the claim says then.

    Args:
        what: the part's name.
        own: accuracies of the original, at the base and in the variation.
        er: the same of ER.
    """
    if not all(x.seeds for x in (*own, *er)):
        return Part(what, "not run")
    drops = own[0] - own[1], er[0] - er[1]
    less = drops[0] - drops[1]
    told = f"{drops[0].shown(2)} without, {drops[1].shown(2)} with ER"
    if er[1].diverged:
        return Part(what, "not so", f"{told}, which diverged", len(er[1].diverged) + len(er[1].by_seed))
    if own[1].diverged and not own[1].by_seed:
        spoken = own[1].diverged & own[0].by_seed.keys() & drops[1].by_seed.keys()
        return Part(what, "so", f"{told}, the original diverged", len(spoken)) if spoken else missing(what, drops[0])
    if not less.seeds:
        return Part(what, "not run", "not run with the same seeds")
    return above(what, less, f"{told}, {less.shown(2)} less")


def alike(what: str, first: Measured, second: Measured, points: float) -> Part:
    """Whether two accuracies differ by no more than that."""
    difference = first - second
    state = both(at_most(difference, points), at_most(-difference, points))
    told = f"{first.shown(2)} and {second.shown(2)}, differing by {difference.shown(2, sign=True)}"
    return judged(what, difference, state, told)
