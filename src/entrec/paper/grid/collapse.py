"""Whether a setting collapses, where the same without the change does not."""

from collections.abc import Sequence

from entrec.paper.grid.claims import Part, above, missing
from entrec.paper.grid.measured import Measured
from entrec.paper.grid.trials import Trials


def collapses(what: str, trials: Trials, control: Trials, where: str, words: Sequence[str]) -> Part:
    """Whether all runs diverge or the lens calls them by one of the words, and none of the control's.

    Args:
        what: the part's name.
        trials: that are said to collapse.
        control: the same without what makes them.
        where: what to call the control.
        words: the lens' for it.
    """
    return _against(what, trials, control, where, words, diverged=1.0)


def lens_says(what: str, trials: Trials, control: Trials, where: str, words: Sequence[str]) -> Part:
    """The same, but of what the lens said alone: where a run diverged before, it said nothing."""
    return _against(what, trials, control, where, words, diverged=None)


def _against(what: str, trials: Trials, control: Trials, where: str, words: Sequence[str], diverged: float | None) -> Part:
    found, beside = _collapsed(trials, words, diverged), _collapsed(control, words, 1.0)
    numbers = f"{_told(trials)}; {where}: {_told(control)}"
    if not (found.seeds and beside.seeds):
        return Part(what, "not run")
    if not found.by_seed and found.diverged:
        return Part(what, "not decided", numbers)
    both = found.by_seed.keys() & beside.by_seed.keys()
    if not both:
        return missing(what, found - beside)
    so = all(found.by_seed.values()) and not any(beside.by_seed.values())
    return Part(what, "so" if so else "not so", numbers, len(both))


def _collapsed(trials: Trials, words: Sequence[str], diverged: float | None) -> Measured:
    """1 for each seed that did; what a diverged run counts as, None for nothing."""
    found = trials.number(lambda summary: float(summary["verdict"] in words))
    if diverged is None:
        return found
    return Measured({**found.by_seed, **dict.fromkeys(found.diverged, diverged)}, frozenset(), found.broken)


def _told(trials: Trials) -> str:
    """What the lens said of the runs, and how accurate they are."""
    said = [", ".join(trials.verdicts.values())] if trials.verdicts else []
    said += [f"{len(trials.diverged)} diverged before the lens looked"] if trials.diverged else []
    entropy = trials.number(lambda summary: summary["held_out_entropy"])
    said += [f"{trials.accuracy.shown()} %, held-out entropy {entropy.shown(2)}"] if trials.runs else []
    return ", ".join(said) or trials.state


def more_accurate(what: str, first: Trials, second: Trials) -> Part:
    """Whether the first is more accurate than the second; a second whose runs all diverged is less so."""
    gain = first.accuracy - second.accuracy
    gone = first.accuracy.by_seed.keys() & second.diverged.keys()
    if gone and not second.runs:
        return Part(what, "so", f"{first.accuracy.shown()} %, the other diverged", len(gone))
    numbers = f"{first.accuracy.shown()} and {second.accuracy.shown()} %, by {gain.shown(1, sign=True)} points"
    return above(what, gain, numbers)
