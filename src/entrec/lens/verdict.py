"""What readings mean, in words: healthy, or how it failed, with the numbers that show it and what usually helps."""

import math
from dataclasses import dataclass
from typing import Literal

from entrec.lens.readings import CodeReadings, Pairs, Readings
from entrec.lens.remedies import Objective, remedies

Name = Literal["healthy", "weak", "collapsed", "uninformative", "low rank", "saturated", "diverging", "early"]

FAILURES: tuple[Name, ...] = ("collapsed", "diverging", "low rank", "uninformative")
HOPELESS: tuple[Name, ...] = ("collapsed", "diverging")  # a run seldom comes back from these, where the bound does not rise

AT_FLOOR = 0.05  # of the way from the floor to the ceiling: directions that lie close together
# The median coordinate's standard deviation, in units of an even sphere's. Real collapses have 0.02 to 0.045; networks that are
# still untrained lie close together around a common mean too, and have 0.09 and more.
POINT = 0.05
# Of the data whose other view is nearer than another datum's. In results/selection the last parts the runs in which nothing
# has collapsed into those that learnt and those that are hardly better than an encoder before training.
CHANCE, BARELY, CLEARLY = 0.55, 0.6, 0.75
AT_CEILING = 0.95  # of its ceiling: a bound that the sample does not let rise
EVEN = 0.99  # of ln m: distributions that say nothing
FEW = 0.5  # times the root of how many directions there could be; two are always few
HANDFUL = 16  # rows that prove nothing
BROKEN = 0.01  # of the rows: fewer are left out, and said
# Steps before which nothing but NaN is called a failure. Of 35 runs of one or two steps an epoch (tiny encoder, 300 or 600
# images of shapes or digits, batches of 256, all methods, own loss and ER, 60 or 70 steps) 16 looked collapsed at first, none
# after step 10. 29 showed no other failure after step 52; six still had few directions, or told nothing, at 68 to 70. Two that
# are made to collapse have done so by step 64 (tests/training/test_verdicts.py).
EARLY = 60

_TITLES: dict[Name, str] = {
    "healthy": "Healthy: spread out, and one view tells of the other",
    "weak": "Weak: nothing has collapsed, but one view tells little of the other",
    "collapsed": "Constant collapse: all data have the same embedding",
    "uninformative": "Uninformative: one view tells nothing of the other",
    "low rank": "Dimensional collapse: few directions, or few codes, are in use",
    "saturated": "Too few data to tell more: a bound is at its own ceiling",
    "diverging": "Diverging: embeddings are no numbers any more",
    "early": "Too early to tell: few steps have been taken, and data are not told apart yet",
}
_ALONE = "Healthy: spread out, as far as one view can say"
_AROUND_A_MEAN = "Healthy: close together around a common mean, and yet one view tells of the other"
_MEAN_ALONE = "Close together around a common mean, from which data still differ"
_CENTRED = "Subtract the mean of all rows before cosines are compared, and look again."


@dataclass(frozen=True)
class Verdict:
    """A diagnosis.

    Args:
        name: in a word, for programs.
        title: in a line, for people.
        because: the numbers that show it, a sentence each.
        remedies: what usually helps; empty where nothing is wrong.
    """

    name: Name
    title: str
    because: tuple[str, ...]
    remedies: tuple[str, ...] = ()


def diagnose(
    readings: Readings | CodeReadings, method: str = "", broken: int = 0, rows: int | None = None, er: bool = False
) -> Verdict:
    """Say what readings mean.

    The first that holds, from the worst on: rows that are no numbers, one point, few directions, nothing told of the other
    view, too few data, little told. Of a single view nothing is said about what it tells.

    Args:
        readings: of `look` or `look_at_codes`.
        method: whose remedies to name, besides those for all.
        broken: rows that were not finite and are not in the readings.
        rows: how many there were in all, where the readings are of a sample.
        er: they were trained with the ER objective, so that it is not named as a remedy.

    Example:
        >>> import torch
        >>> from entrec.lens.readings import look
        >>> z = torch.randn(500, 32, generator=torch.Generator().manual_seed(0))
        >>> diagnose(look(z, z.flip(0))).name
        'uninformative'
    """
    rows = readings.rows + broken if rows is None else rows
    if broken > max(1, BROKEN * rows):
        return diverging(broken, rows, method)
    if isinstance(readings, CodeReadings):
        return _of_codes(readings, Objective(method, er))
    return _of_directions(readings, Objective(method, er))


def diverging(broken: int, rows: int, method: str = "") -> Verdict:
    """Said of rows that are no numbers, where perhaps none is left to be looked at."""
    return _verdict("diverging", (f"{broken} of {rows} rows are NaN, infinite or zero.",), Objective(method))


def unless_early(verdict: Verdict, steps: int) -> Verdict:
    """The verdict on a run, or that it is too early for one: a network that has hardly begun may look as if it had collapsed.

    What is no number any more has failed, however early.

    Args:
        verdict: of `diagnose`.
        steps: of the optimiser that lie behind it.

    Example:
        >>> collapsed = Verdict("collapsed", "Constant collapse", ("Entropy 0.01 nats.",))
        >>> unless_early(collapsed, 2).name, unless_early(collapsed, 200).name
        ('early', 'collapsed')
    """
    if steps >= EARLY or verdict.name not in FAILURES or verdict.name == "diverging":
        return verdict
    few = f"Steps taken: {steps}. Before {EARLY} also a run that goes well may look like one that has failed."
    return Verdict("early", _TITLES["early"], (few, *verdict.because), remedies("early", Objective()))


def _of_directions(found: Readings, of: Objective) -> Verdict:
    filled = (
        f"Entropy {found.entropy:.2f} nats: {found.filled:.0%} of the way from a single point ({found.floor:.2f}) to the whole "
        f"sphere ({found.ceiling:.2f})."
    )
    directions = f"Effective rank {found.rank:.1f} of {found.largest_rank}."
    if found.rows < HANDFUL and found.pairs is None:
        return _verdict("saturated", (f"{found.rows} rows are too few to tell anything.", filled), of)
    if found.filled < AT_FLOOR:
        return _close_together(found, filled, directions, of)
    if found.rank < _few(found.largest_rank):
        return _verdict("low rank", (directions, filled), of)
    if found.pairs is None:
        return _verdict("healthy", (filled, directions), of, title=_ALONE)
    told = _told(found.pairs)
    if not _tells(found.pairs, found.rows):
        return _verdict(_untold(found.rows), (*told, filled), of)
    if _at_ceiling(found.pairs):
        return _verdict("saturated", (*told, filled, directions), of)
    name: Name = "healthy" if found.pairs.nearer > CLEARLY else "weak"
    return _verdict(name, (filled, directions, *told), of)


def _close_together(found: Readings, filled: str, directions: str, of: Objective) -> Verdict:
    """One point, or a common mean that data differ from: a network that is still untrained has that, and many that are not."""
    spread = (
        f"The directions' median coordinate has {found.spread[1]:.3f} of the standard deviation that it has on an even sphere."
    )
    if found.spread[1] < POINT or (found.pairs is not None and found.pairs.nearer <= BARELY):
        return _verdict("collapsed", (filled, spread, directions), of)
    if found.pairs is None:
        return _verdict("weak", (filled, spread, directions), of, title=_MEAN_ALONE, helps=(_CENTRED,))
    because = (filled, spread, directions, *_told(found.pairs))
    if found.pairs.nearer > CLEARLY and found.rank < min(_few(found.largest_rank), _around_a_mean(found) / 2):
        return _verdict("low rank", because, of)
    if found.pairs.nearer > CLEARLY:
        return _verdict("healthy", because, of, title=_AROUND_A_MEAN, helps=(_CENTRED,))
    return _verdict("weak", because, of)


def _of_codes(found: CodeReadings, of: Objective) -> Verdict:
    used = f"Entropy of the codes in use {found.marginal:.2f} nats, {found.marginal / found.largest:.0%} of ln {found.codes}."
    own = f"Entropy of a datum's own distribution {found.conditional:.2f} nats, {found.conditional / found.largest:.0%} of it."
    if found.marginal < AT_FLOOR * found.largest:
        return _verdict("collapsed", (used, own), of)
    signature = (f"A cross entropy of ln {found.codes} = {found.largest:.4f} is that of an even guess.",)
    if found.conditional > EVEN * found.largest:
        return _verdict("uninformative", (own, used, *signature), of)
    if math.exp(found.marginal) < _few(min(found.rows, found.codes), FEW / 2):
        return _verdict("low rank", (f"As many codes in use as {math.exp(found.marginal):.1f} even ones.", used, own), of)
    if found.pairs is None:
        return _verdict("healthy", (used, own), of, title=_ALONE)
    told = _told(found.pairs)
    if not _tells(found.pairs, found.rows):
        return _verdict(_untold(found.rows), (*told, used, own, *signature), of)
    if found.pairs.er_bound > AT_CEILING * found.pairs.infonce_ceiling:  # of k data, no more than ln k can be told apart
        return _verdict("saturated", (*told, used, own), of)
    return _verdict("healthy" if found.pairs.nearer > CLEARLY else "weak", (used, own, *told), of)


def _few(could: int, times: float = FEW) -> float:
    """How many directions are few among so many, which grows slowly: wide layers use no more of them than narrow ones."""
    return max(2.5, times * math.sqrt(could)) if could > 4 else 0.0


def _around_a_mean(found: Readings) -> float:
    """The effective rank of a common mean and, as far from it as these, noise that is even in all directions.

    Its singular values are in proportion to 1, the mean's, and spread / sqrt(d), d times; in few dimensions a mean alone makes
    the rank a low one.
    """
    mean = 1 / (1 + found.spread[1] * math.sqrt(found.largest_rank))
    return math.exp(-mean * math.log(mean) - (1 - mean) * math.log((1 - mean) / found.largest_rank))


def _at_ceiling(pairs: Pairs) -> bool:
    infonce = (pairs.infonce_bound or 0.0) > AT_CEILING * pairs.infonce_ceiling
    return infonce or pairs.er_bound > AT_CEILING * pairs.er_ceiling


def _tells(pairs: Pairs, rows: int) -> bool:
    """Whether it is no accident: by more than three standard errors of what chance gives, where rows are few."""
    return pairs.nearer > max(CHANCE, 0.5 + 1 / math.sqrt(rows))


def _untold(rows: int) -> Name:
    """Nothing was told, or nothing could be, by a handful of rows."""
    return "saturated" if rows < HANDFUL else "uninformative"


def _told(pairs: Pairs) -> tuple[str, ...]:
    er = f"ER bound {pairs.er_bound:.2f} nats (ceiling {pairs.er_ceiling:.2f})"
    both = er
    if pairs.infonce_bound is not None:
        both += f", InfoNCE {pairs.infonce_bound:.2f} (ceiling {pairs.infonce_ceiling:.2f})"
    return (f"A datum's other view is nearer than another datum's in {pairs.nearer:.0%} of cases; 50% is chance.", f"{both}.")


def _verdict(
    name: Name,
    because: tuple[str, ...],
    of: Objective,
    title: str | None = None,
    helps: tuple[str, ...] | None = None,
) -> Verdict:
    return Verdict(name, title or _TITLES[name], because, remedies(name, of) if helps is None else helps)
