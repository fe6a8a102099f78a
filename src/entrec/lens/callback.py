"""The lens as a callback of Lightning's: readings in the log, a verdict in words, and an end to a run that has collapsed."""

import difflib
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Literal, get_args

from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_info

from entrec import checks
from entrec.lens import packages
from entrec.lens.batches import one_batch, part_of, rows_of
from entrec.lens.judged import judged
from entrec.lens.logged import numbers
from entrec.lens.projections import Projections, Views, check_of_batch, looked_at, measurable, together
from entrec.lens.remedies import Objective
from entrec.lens.undisturbed import undisturbed
from entrec.lens.verdict import FAILURES, HOPELESS, Verdict, unless_early

OnCollapse = Literal["warn", "stop"]

# Held-out rows in a pass: always as many, so that what is random about their views is always the same; and unlike a batch of
# training, so that projections which that left behind are not taken for theirs.
AT_ONCE = 250
# Of the images that training has passed, how many may be held-out ones: forwards only is a third of a step, so 0.5 % of it.
SHARE = 0.015
_Base: Any = Callback  # for type checkers of no one package, as it fits both


class LensCallback(_Base):  # type: ignore[misc]
    """Look at the projections every so many steps, log what is read off them, and say when they go wrong.

    Under `lightning.pytorch` and under `pytorch_lightning` alike; import the latter before making this. For
    `entrec.training.Pretraining` it knows where the projections are; for a module of your own a line says it:

        LensCallback(lambda module, batch: (module(batch[0]), module(batch[1])))

    The function is called in eval mode, without gradients and with random numbers of its own, so that training goes exactly
    as it would without it; it must compute and change nothing. Every process calls it, as it may talk to the others; the
    first one measures its own rows and logs them as `lens/...`: `entropy`, `entropy_scale` (from 0, one point, to 1, the whole
    sphere), `uniformity`, `effective_rank`, `std_min`, `std_median`, `reconstruction`, `er_bound`, `er_ceiling`,
    `infonce_bound`, `infonce_ceiling`, `alignment`, `nearer`; of codes `marginal` and `conditional` over ln m instead of the
    first six. `verdict` is the last verdict and `history` all of them with their steps, of the held-out data where there are
    any and else of the batch. A failure is said as a warning when it begins, and once more when it is over. In the first 60
    steps only projections that are no numbers are one; what looks like another is called `early`.

    Args:
        projections: from the module and a batch to the projections of its two views, (k, d) each, or of one.
        every: so many steps of the optimiser, whatever the Trainer's log_every_n_steps.
        kappa: of the kernel; the inverse of a contrastive temperature.
        held_out: further data, logged as `lens_held_out/...`: a batch, or a loader of some. At most `rows` of them are kept in
            memory, each process's all alike, so that every look is at the same; the loader's batch size changes nothing.
        held_out_every: so many looks, with one at the first and one at the end; None: as seldom as it takes to keep them near
            0.5 % of training (a small batch makes that many looks).
        codes: the projections are logits of codes, over the temperature of their softmax (for `Pretraining`: known).
        on_collapse: `"stop"` ends the run when it has been seen collapsed or diverging twice in a row: one batch may be odd. A
            collapse is none before 60 steps.
        rows: no more than these are looked at. A first and a last look at 2048 held-out ones take 4 % of 600 steps of 64.
        method: that trains, whose remedies are named too (for `Pretraining`: known).
        er: it trains with the ER objective, which is no remedy then (for `Pretraining`: known).
    """

    def __new__(cls, *_: Any, **__: Any) -> "LensCallback":
        """An object of this class, and of the other package's too where that is in use."""
        found: LensCallback = super().__new__(packages.fitting(cls))
        return found

    def __init__(
        self,
        projections: Projections | None = None,
        every: int = 100,
        kappa: float = 10.0,
        held_out: Any = None,
        codes: bool = False,
        on_collapse: OnCollapse = "warn",
        rows: int = 512,
        method: str = "",
        held_out_every: int | None = None,
        er: bool = False,
    ) -> None:
        if projections is not None and not callable(projections):
            raise TypeError(f"projections must be a function of the module and a batch, got {type(projections).__name__}")
        if on_collapse not in get_args(OnCollapse):
            raise ValueError(f"on_collapse must be 'warn' or 'stop', got {on_collapse!r}{_nearest(on_collapse)}")
        checks.positive("kappa", kappa)
        self.projections, self.kappa, self.codes, self.method, self.er = projections, kappa, codes, method, er
        self.every, self.rows = checks.whole("every", every, 1), checks.whole("rows", rows, 2)
        self.held_out, self.on_collapse = held_out, on_collapse
        self.held_out_every = None if held_out_every is None else checks.whole("held_out_every", held_out_every, 1)
        self.history: list[tuple[int, Verdict]] = []
        self._kept: Any = None  # the held-out data as one batch
        self._step = 0  # of the optimiser, after the last batch
        self._tried = False
        self._looks = 0  # of this fit
        self._held_out_step = 0  # of the last look at held-out data
        # Data of this process in a step; the first batch's, as the last of an epoch may differ between processes.
        self._batch = 0

    def __reduce__(self) -> Any:
        """To another process, where it may have to be of both packages again."""
        return packages.anew, (packages.plain(type(self)),), self.__dict__

    @property
    def verdict(self) -> Verdict | None:
        """The last one; None before the first look, and in all processes but the first."""
        return self.history[-1][1] if self.history else None

    def state_dict(self) -> dict[str, Any]:
        """What was said, in types that can be loaded without running code."""
        return {"history": [(step, asdict(verdict)) for step, verdict in self.history]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there, and say nothing twice."""
        self.history = [(step, Verdict(**verdict)) for step, verdict in state_dict["history"]]

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse a module whose projections cannot be found, before anything is trained."""
        if stage == "fit" and self.projections is None and not _is_ours(pl_module):
            raise ValueError(
                f"where {type(pl_module).__name__} has its projections cannot be known; a function of the module and a batch "
                "says it, for instance\n"
                "    LensCallback(projections=lambda module, batch: (module(batch[0]), module(batch[1])))"
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Keep the held-out data."""
        self._step = self._held_out_step = trainer.global_step
        self._tried, self._looks = False, 0
        if self.held_out is not None and self._kept is None:
            with undisturbed(pl_module):
                self._kept = one_batch(self.held_out, self.rows)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Look, if it is time."""
        before, self._step = self._step, trainer.global_step
        looks = self._step // self.every > before // self.every
        if looks or not self._tried:  # what is wrong with views is known at once, not after `every` steps
            seen = {"lens": self._project(trainer, pl_module, [batch])}  # in every process, as they may talk to each other
            if not self._tried:
                self._batch = len(seen["lens"].z[0]) * trainer.accumulate_grad_batches
            if self._time_for_held_out() or not self._tried:
                seen |= self._held_out_views(trainer, pl_module)
            self._looks += looks
            # At the first batch for callbacks that monitor numbers and may ask for them before the first look.
            self._judge(trainer, pl_module, seen, looks)
            self._tried = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Look at the held-out data as training leaves them."""
        if self._kept is not None and self._step > self._held_out_step:
            self._judge(trainer, pl_module, self._held_out_views(trainer, pl_module), ended=True)

    def _time_for_held_out(self) -> bool:
        """Whether held-out data are due at this look."""
        if self._kept is None or self._looks == 0:
            return self._kept is not None
        if self.held_out_every is not None:
            return self._looks % self.held_out_every == 0
        return (self._step - self._held_out_step) * self._batch * SHARE >= rows_of(self._kept)

    def _judge(self, trainer: Any, pl_module: Any, seen: dict[str, Views], looks: bool = True, ended: bool = False) -> None:
        """Log what is read off projections, and at a look conclude, from the held-out ones where there are any."""
        concludes = looks and (self._kept is None or "lens_held_out" in seen)
        self._held_out_step = self._step if concludes and self._kept is not None else self._held_out_step
        if trainer.is_global_zero:
            of = Objective(self.method, self.er) if self.projections is not None else self._known_objective(pl_module.method)
            for name, views in seen.items():
                readings, verdict = judged(tuple(map(measurable, views.z)), views.codes, self.kappa, *of)
                if readings is not None:
                    self._log(trainer, pl_module, numbers(readings, under=name), looks, ended)
            if verdict is not None and concludes:  # of the last: held-out data where there are any
                self._conclude(unless_early(verdict, self._step))
        if self.on_collapse == "stop" and concludes:
            hopeless = [verdict.name in HOPELESS for _, verdict in self.history[-2:]] == [True, True]
            stop = trainer.strategy.reduce_boolean_decision(trainer.is_global_zero and hopeless, all=False)
            trainer.should_stop = trainer.should_stop or stop

    def _known_objective(self, method: Any) -> Objective:
        """What one of `entrec.methods` trains with."""
        return Objective(self.method or type(method).__name__.lower(), self.er or getattr(method, "with_er", False))

    def _log(self, trainer: Any, pl_module: Any, found: dict[str, float], looks: bool, ended: bool) -> None:
        if not ended:  # for callbacks that monitor them; other processes do not have these keys, and must not be waited for
            pl_module.log_dict(found, logger=False, on_step=True, on_epoch=False, rank_zero_only=trainer.world_size > 1)
        # A logger would get them from there at its own steps only, and until the epoch ends again and again.
        for logger in trainer.loggers if looks else ():
            logger.log_metrics(found, step=self._step - 1)  # Lightning calls the first step 0

    def _held_out_views(self, trainer: Any, pl_module: Any) -> dict[str, Views]:
        """Those of the held-out data, if there are any."""
        if self._kept is None:
            return {}
        return {"lens_held_out": self._project(trainer, pl_module, self._parts(trainer), held_out=True)}

    def _parts(self, trainer: Any) -> Iterator[Any]:
        """The held-out data where the module is, some at a time."""
        for start in range(0, rows_of(self._kept), AT_ONCE):
            part = trainer.precision_plugin.convert_input(part_of(self._kept, start, start + AT_ONCE))
            yield trainer.strategy.batch_to_device(part)

    def _project(self, trainer: Any, pl_module: Any, batches: Iterable[Any], held_out: bool = False) -> Views:
        found: list[Views] = []
        with undisturbed(pl_module), trainer.precision_plugin.forward_context():
            for batch in batches:
                found.append(looked_at(pl_module, batch, self.projections, self.codes))
                if held_out:
                    check_of_batch(found[-1], batch)
        return together(found, self.rows)

    def _conclude(self, verdict: Verdict) -> None:
        """Keep the verdict, and say it where something else went wrong than the last time, or where it can be told at last."""
        before = None if self.verdict is None else _worth_saying(self.verdict)
        self.history.append((self._step, verdict))
        if _worth_saying(verdict) == before:
            return
        text = " ".join((f"Lens at step {self._step}: {verdict.title}.", *verdict.because, *verdict.remedies))
        if verdict.name in FAILURES:
            warnings.warn(text, stacklevel=2)
        else:
            rank_zero_info(text)


def _is_ours(module: Any) -> bool:
    from entrec.training.module import Pretraining  # with all that trains

    return isinstance(module, Pretraining)


def _nearest(word: Any) -> str:
    close = difflib.get_close_matches(str(word).lower(), get_args(OnCollapse), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _worth_saying(verdict: Verdict) -> str:
    """Its name; empty where nothing is wrong, which saturated bounds are not."""
    return verdict.name if verdict.name in (*FAILURES, "early") else ""
