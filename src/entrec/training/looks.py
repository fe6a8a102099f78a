"""A run's looks through the lens, and what they conclude: that it has failed, which was best, that waiting is of no use."""

from collections.abc import Sequence

from lightning.fabric import Fabric

from entrec.lens.verdict import FAILURES, HOPELESS
from entrec.training.assemble import Parts
from entrec.training.draws import seed_of
from entrec.training.held_out import HeldOut, Look

_KAPPA = 10.0  # the lens's, for methods without one
_RISE = 0.01  # nats that a bound must rise by from one look to the next
_UNFIT = (*FAILURES, "early")  # verdicts whose bound is no reason to keep an encoder

Noted = tuple[int, str, float | None]  # of a look: after how many epochs, verdict, and held-out ER bound


class Looks:
    """What the lens has seen of a run, and sees when it is asked.

    Args:
        fabric: device and precision of the run.
        parts: of the run.
        steps: in an epoch.
    """

    def __init__(self, fabric: Fabric, parts: Parts, steps: int) -> None:
        self._fabric, self._parts, self._settings, self._steps = fabric, parts, parts.settings, steps
        self.noted: list[Noted] = []
        self._last: Look | None = None
        self._held_out: HeldOut | None = None

    def take(self, epochs: int) -> Look:
        """A look at held-out views, with the epochs that are over noted beside its verdict."""
        found = self._last = self._seen(epochs)
        self.noted.append((epochs, found.verdict.name, found.row().get("held_out_er_bound")))
        return found

    def last(self, epochs: int) -> Look | None:
        """The last one; of a run that goes on after it, the same once more."""
        if self._last is None and self.noted and self.noted[-1][0] == epochs:
            self._last = self._seen(epochs)
        return self._last

    def again(self, epochs: int) -> Look | None:
        """A look at weights of so many epochs, beside those that were noted; None where the lens is not used."""
        return self._seen(epochs) if self.noted else None

    def _seen(self, epochs: int) -> Look:
        parts, settings = self._parts, self._settings
        if self._held_out is None:
            self._held_out = HeldOut(parts.source, parts.augment, self._fabric.device, seed_of(settings.seed, 4))
        with self._fabric.autocast():
            kappa, steps = settings.options.get("kappa", _KAPPA), epochs * self._steps
            return self._held_out.look(parts.method, kappa, settings.method, settings.er, steps)

    @property
    def failed(self) -> bool:
        """Whether the lens has seen a collapse, or no numbers, twice in a row, after the warm-up and with no rise of the bound.

        A network that has hardly begun may look like one that has collapsed; in its first steps the lens does not call it so
        (`unless_early`), however short the warm-up is.
        """
        return hopeless(self.noted) and not self._warming_up(self.noted[-2][0])

    def _warming_up(self, epochs: int) -> bool:
        return epochs < self._settings.warmup * self._settings.epochs

    @property
    def newest_is_best(self) -> bool:
        """Whether no look before the last one had as high a bound."""
        return best(self.noted) == len(self.noted) - 1

    @property
    def best_epochs(self) -> int | None:
        """After how many epochs the look with the highest bound was; None where no look has one."""
        number = best(self.noted)
        return None if number is None else self.noted[number][0]

    @property
    def stale(self) -> bool:
        """Whether no look has been better for as long as the run is to wait."""
        patience, number = self._settings.patience, best(self.noted)
        return patience is not None and number is not None and len(self.noted) - 1 - number >= patience


def hopeless(looks: Sequence[Noted]) -> bool:
    """Whether the last two saw a collapse, or no numbers, and no rise of the bound between them.

    >>> hopeless([(1, "collapsed", 0.0), (2, "collapsed", 0.0)]), hopeless([(1, "collapsed", 0.0), (2, "collapsed", 0.5)])
    (True, False)
    """
    last = looks[-2:]
    if len(last) < 2 or not all(name in HOPELESS for _, name, _ in last):
        return False
    (_, _, before), (_, _, after) = last
    return before is None or after is None or after < before + _RISE


def best(looks: Sequence[Noted]) -> int | None:
    """The number of the look with the highest ER bound, the first of equal ones; None where no look has one.

    Looks that saw a failure, also an early one, count only where all did: one point has a bound of 0, and healthy ones can be
    below.

    >>> best([(1, "early", 0.0), (2, "healthy", -0.5), (3, "healthy", -0.2), (4, "healthy", -0.2)])
    2
    """
    found = [(name in _UNFIT, bound, -number) for number, (_, name, bound) in enumerate(looks) if bound is not None]
    fair = [(bound, number) for failed, bound, number in found if not failed] or [x[1:] for x in found]
    return -max(fair)[1] if fair else None
