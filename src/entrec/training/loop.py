"""The loop: epochs and their updates, rows, checkpoints, and the way back from one."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from entrec.data import Held
from entrec.evaluation.features import Features, extract
from entrec.pairwise import ranks
from entrec.training import checkpoint
from entrec.training.assemble import Parts
from entrec.training.checkpoint import History, Place
from entrec.training.draws import generator_of
from entrec.training.encoders import facts_of
from entrec.training.feed import Fed, Feed
from entrec.training.images import single
from entrec.training.log import Log
from entrec.training.looks import Looks
from entrec.training.rows import Moment, Row, sent
from entrec.training.run import Run
from entrec.training.update import Outcome, Update
from entrec.views.augment import Plain


class DivergedError(RuntimeError):
    """The loss is no number any more."""


class Loop:
    """A run in progress.

    Args:
        fabric: device, ranks and precision, launched.
        parts: of the run.
        run: its folder.
    """

    def __init__(self, fabric: Fabric, parts: Parts, run: Run) -> None:
        self.fabric, self.parts, self.run, self.settings = fabric, parts, run, parts.settings
        self.method: Any = parts.method
        source, settings, among = parts.source, parts.settings, fabric.world_size
        assert settings.batch_size is not None  # filled in by `assemble`
        assert settings.workers is not None
        self.batch_size, self.workers = settings.batch_size, settings.workers
        self.feed = Feed(
            source, parts.augment, self.batch_size // among, settings.seed, fabric.device, fabric.global_rank, among,
            self.workers, settings.epochs,
        )  # fmt: skip
        self.total = settings.epochs * len(self.feed)
        self.update = Update(fabric, parts, self.feed, self.total)
        self.place = Place(0, 0, 0)
        self.writer = checkpoint.Writer()
        self.seconds = 0.0  # that earlier sittings of the run took
        self._begun = time.perf_counter()
        self.looks = Looks(fabric, parts, len(self.feed))
        self._asked: Row | None = None  # the row that has not come yet
        self._last = (Moment(fabric.device), 0)  # when the one before it came, and after how many steps
        self.skipped: set[str] = {name for part in (source.train, source.test) for name in getattr(part, "skipped", ())}

    def restore(self, place: Place, parts: dict[str, Any], history: History) -> None:
        """Go on from a checkpoint."""
        self.update.load(parts)
        self.place = place
        self.skipped |= set(history.skipped)
        self.seconds = history.seconds
        self.looks.noted = list(history.looks)
        if self._is_best() and self.fabric.is_global_zero:  # between whose checkpoint and its copy it may have been killed
            checkpoint.copy(self.run.checkpoint, self.run.best)

    def elapsed(self) -> float:
        """Seconds that the run has taken, over all its sittings."""
        return self.seconds + time.perf_counter() - self._begun

    def fit(self, log: Log | None) -> Iterator[int]:
        """Train to the end; yields the number of each epoch that is over, and writes its checkpoint when asked to go on."""
        log_every, told = self.settings.log_every, False
        if self.update.not_compiled:
            _say(log, f"nothing is compiled, as a trial of it failed: {self.update.not_compiled}")
        self._last = (Moment(self.fabric.device), self.place.step)
        while self.place.epoch < self.settings.epochs:
            epoch = self.place.epoch
            if self.place.batch == 0:
                self._begin_epoch(epoch)
            weights = getattr(self.method, "weights", None)
            for fed in self.feed.epoch(epoch, self.place.batch, weights):
                last = self.place.batch + 1 == len(self.feed)
                numbers = self._one_step(fed, measured=last or self.place.step % log_every == 0)
                if not told and self.update.captured is not None and self.update.captured.refused:
                    told = True
                    _say(log, f"steps are launched one kernel at a time, as {self.update.captured.refused}")
                self.place = Place(self.place.step + 1, epoch, self.place.batch + 1)
                if fed.skipped:
                    self._count_skipped(fed.skipped, log)
                if numbers is not None:
                    self._write(log)  # the last row, which a GPU has long made
                    self._asked = self._ask(numbers)
                every = self.settings.checkpoint_every
                saves = every is not None and self.place.step % every == 0 and not last  # an epoch's own follows its score
                if last or saves or not self.update.on_gpu:
                    self._write(log)
                if saves:
                    self.save()
            self.place = Place(self.place.step, epoch + 1, 0)
            yield epoch
            self.save()  # after the epoch's score was written: what a checkpoint has behind it is never written again
            self._last = (Moment(self.fabric.device), self.place.step)

    def _is_best(self) -> bool:
        """Whether the encoder is that of the look with the highest bound, and is to be kept for it."""
        newest = self.looks.newest_is_best and self.place.batch == 0 and self.looks.noted[-1][0] == self.place.epoch
        return self.settings.keep == "best-er" and newest

    def _ask(self, numbers: dict[str, Tensor]) -> Row:
        """Send a row's numbers on their way, with the first step whose loss was none."""
        values = sent([ranks.largest(self.update.bad), *numbers.values()], self.fabric.device)
        known = {"rate": self.update.rate}
        return Row(self.place.step, self.place.epoch, known, tuple(numbers), values, Moment(self.fabric.device))

    def _write(self, log: Log | None) -> None:
        """Write the row that was asked for, if any, once it is there."""
        row, self._asked = self._asked, None
        if row is None:
            return
        first_bad, numbers = row.numbers()
        self._stop_if_bad(first_bad)
        moment, step = self._last
        rate = (row.step - step) * self.batch_size / row.moment.seconds_since(moment)
        self._last = (row.moment, row.step)
        if log is not None:
            log.row({"step": row.step, "epoch": row.epoch, **numbers, "samples_per_second": rate}, self.settings.epochs)

    def _begin_epoch(self, epoch: int) -> None:
        if hasattr(self.method, "begin_epoch"):
            generator = generator_of(self.fabric.device, self.settings.seed, 3, epoch)
            for parameter in self.method.begin_epoch(self._project, generator):
                self.update.forget(parameter)  # the momentum of what it was before

    def _project(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        found = self.extract(module, single(self.parts.source.train))
        assert found.places is not None  # of what `extract` returns
        return found.values, found.places

    def extract(self, module: nn.Module, dataset: Any) -> Features:
        """Features of the deterministic view that evaluation and clustering see, on the run's device."""
        assert self.settings.image_size is not None  # filled in by `assemble`
        plain, device = Plain(self.parts.augment, self.settings.image_size), self.fabric.device
        if self.workers > 0 and not isinstance(dataset, Held):
            self.writer.wait()  # workers are forked, with whatever another thread holds at that moment
        # Other modes and sizes than a step's are not worth compiling for; to say so takes seconds to import.
        with torch.compiler.set_stance("force_eager") if self.update.compiles else nullcontext():
            found = extract(module, dataset, plain, device=device, workers=self.workers, keep_on_device=True)
        self.skipped.update(found.skipped)
        return found

    def _one_step(self, fed: Fed, measured: bool) -> dict[str, Tensor] | None:
        """One update; at a log point the numbers that describe it, still on the device."""
        outcome = self.update(fed, self.place.step)
        return self._numbers(outcome) if measured else None

    def _numbers(self, outcome: Outcome) -> dict[str, Tensor]:
        with torch.no_grad():
            terms = self.method.measure(outcome.step)
        found = {
            "loss": outcome.step.loss,
            "entropy": terms.entropy,
            "reconstruction": terms.reconstruction,
            "er_bound": terms.entropy + terms.reconstruction,
        }
        return found if outcome.top1 is None else {**found, "probe_top1": outcome.top1}

    def _stop_if_bad(self, step: int) -> None:
        if step < 0:
            return
        lost = self._last_write()
        self.fabric.barrier()  # all ranks come here, and one that ends may take the others with it
        last = self.run.checkpoint
        where = f"the last good checkpoint is {last}" if last.is_file() else "there is no checkpoint yet"
        where += f" (a later one could not be written: {lost})" if lost else ""
        # Not with --resume, which goes on with the settings that the run was begun with.
        wider = "" if self.fabric.strategy.precision.precision == "32-true" else ", or with --precision 32"
        raise DivergedError(
            f"the loss or the weights were NaN or infinite at step {step + 1} (epoch {step // len(self.feed) + 1}); {where}. "
            f"What may help is a new run with a lower --rate than {self.settings.rate:g}{wider}: in another folder (--out), or "
            "in the place of this one (--overwrite). --resume "
            f"{'goes on from that checkpoint' if last.is_file() else 'begins again'} with the same settings"
        )

    def _last_write(self) -> OSError | None:
        """Wait for the file that is being written; what kept it from being written, if anything did."""
        try:
            self.writer.wait()
        except OSError as error:
            return error
        return None

    def save(self) -> None:
        """Begin to write the checkpoint, and the best where it is that too, unless what it would hold is broken."""
        # Weights can break before any loss shows it; norms, which are one pass over them, tell.
        sizes = torch.stack(torch._foreach_norm(list(self.parts.method.parameters())))
        broken = torch.where(sizes.isfinite().all(), self.update.bad, self.place.step - 1)
        self._stop_if_bad(int(ranks.largest(torch.where(self.update.bad < 0, broken, self.update.bad))))
        if self.fabric.is_global_zero:
            history = History(self.elapsed(), tuple(sorted(self.skipped)), tuple(self.looks.noted))
            facts = facts_of(self.parts.source)
            content = checkpoint.Content(self.place, self.settings.flat(), facts, self.update.state(), history)
            self.writer.save(self.run.checkpoint, content, also=self.run.best if self._is_best() else None)
        self.fabric.barrier()

    def _count_skipped(self, names: tuple[str, ...], log: Log | None) -> None:
        new = [name for name in names if name not in self.skipped]
        self.skipped.update(new)
        for name in new:
            _say(log, f"skipped an unreadable image: {name}")


def _say(log: Log | None, text: str) -> None:
    if log is not None:
        log.say(text)
