"""The loop: epochs and their updates, rows, checkpoints, and the way back from one."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from entrec.evaluation.features import Features, extract, labelled
from entrec.evaluation.knn import knn_accuracy
from entrec.pairwise import ranks
from entrec.training import checkpoint
from entrec.training.assemble import Parts
from entrec.training.checkpoint import History, Place
from entrec.training.draws import generator_of
from entrec.training.encoders import facts_of
from entrec.training.feed import Fed, Feed
from entrec.training.images import single, some
from entrec.training.log import Log
from entrec.training.run import Run
from entrec.training.update import Outcome, Update
from entrec.views.augment import Plain

_KNN_IMAGES = 10_000  # of each split that an online kNN score looks at, at the most


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
        self.batch_size = settings.batch_size
        self.feed = Feed(
            source, parts.augment, self.batch_size // among, settings.seed, fabric.device, fabric.global_rank, among,
            settings.workers,
        )  # fmt: skip
        self.total = settings.epochs * len(self.feed)
        self.update = Update(fabric, parts, self.feed, self.total)
        self.place = Place(0, 0, 0)
        self.seconds = 0.0  # that earlier sittings of the run took
        self._begun = time.perf_counter()
        self.skipped: set[str] = {name for part in (source.train, source.test) for name in getattr(part, "skipped", ())}

    def restore(self, place: Place, parts: dict[str, Any], history: History) -> None:
        """Go on from a checkpoint."""
        self.update.load(parts)
        self.place = place
        self.skipped |= set(history.skipped)
        self.seconds = history.seconds

    def elapsed(self) -> float:
        """Seconds that the run has taken, over all its sittings."""
        return self.seconds + time.perf_counter() - self._begun

    def fit(self, log: Log | None) -> Iterator[int]:
        """Train to the end; yields the number of each epoch that is over, and writes its checkpoint when asked to go on."""
        log_every, started, told = self.settings.log_every, (time.perf_counter(), self.place.step), False
        while self.place.epoch < self.settings.epochs:
            epoch = self.place.epoch
            if self.place.batch == 0:
                self._begin_epoch(epoch)
            weights = getattr(self.method, "weights", None)
            for fed in self.feed.epoch(epoch, self.place.batch, weights):
                last = self.place.batch + 1 == len(self.feed)
                row = self._one_step(fed, measured=last or self.place.step % log_every == 0)
                if not told and self.update.captured is not None and self.update.captured.refused:
                    told = True
                    _say(log, f"steps are launched one kernel at a time, as {self.update.captured.refused}")
                self.place = Place(self.place.step + 1, epoch, self.place.batch + 1)
                if fed.skipped:
                    self._count_skipped(fed.skipped, log)
                if row is not None:
                    numbers = self._numbers(row)
                    now = (time.perf_counter(), self.place.step)
                    rate = (now[1] - started[1]) * self.batch_size / (now[0] - started[0])
                    started = now
                    if log is not None:
                        where = {"step": self.place.step, "epoch": epoch}
                        log.row({**where, **numbers, "samples_per_second": rate}, self.settings.epochs)
                every = self.settings.checkpoint_every
                if every and self.place.step % every == 0 and not last:  # the epoch's own comes after its score
                    self.save()
            self.place = Place(self.place.step, epoch + 1, 0)
            yield epoch
            self.save()  # after the epoch's score was written: what a checkpoint has behind it is never written again
            started = (time.perf_counter(), self.place.step)

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
        # Other modes and sizes than a step's are not worth compiling for; to say so takes seconds to import.
        with torch.compiler.set_stance("force_eager") if self.settings.compile else nullcontext():
            found = extract(module, dataset, plain, device=device, workers=self.settings.workers, keep_on_device=True)
        self.skipped.update(found.skipped)
        return found

    def _one_step(self, fed: Fed, measured: bool) -> dict[str, Tensor] | None:
        """One update; at a log point the row that describes it, still on the device."""
        outcome = self.update(fed, self.place.step)
        return self._row(outcome) if measured else None

    def _row(self, outcome: Outcome) -> dict[str, Tensor]:
        with torch.no_grad():
            terms = self.method.measure(outcome.step)
        found = {
            "rate": torch.tensor(self.update.peaks[0] * self.update.factor(self.place.step)),
            "loss": outcome.step.loss,
            "entropy": terms.entropy,
            "reconstruction": terms.reconstruction,
            "er_bound": terms.entropy + terms.reconstruction,
        }
        return found if outcome.top1 is None else {**found, "probe_top1": outcome.top1}

    def _numbers(self, row: dict[str, Tensor]) -> dict[str, float]:
        """The row on the host, by one look at the device, which also tells whether all losses have been numbers."""
        numbers = (ranks.largest(self.update.bad), *row.values())
        first_bad, *values = torch.stack([x.to(self.fabric.device, torch.float64) for x in numbers]).tolist()
        self._stop_if_bad(int(first_bad))
        return dict(zip(row, values, strict=True))

    def _stop_if_bad(self, step: int) -> None:
        if step < 0:
            return
        last = self.run.checkpoint
        where = f"the last good checkpoint is {last}" if last.is_file() else "there is no checkpoint yet"
        raise DivergedError(
            f"the loss or the weights were NaN or infinite at step {step + 1} (epoch {step // len(self.feed) + 1}); {where}. "
            "A lower --rate, or --precision 32, may help"
        )

    def save(self) -> None:
        """Write the checkpoint, unless what it would hold is broken."""
        # Weights can break before any loss shows it; norms, which are one pass over them, tell.
        sizes = torch.stack(torch._foreach_norm(list(self.parts.method.parameters())))
        broken = torch.where(sizes.isfinite().all(), self.update.bad, self.place.step - 1)
        self._stop_if_bad(int(ranks.largest(torch.where(self.update.bad < 0, broken, self.update.bad))))
        if self.fabric.is_global_zero:
            history = History(self.elapsed(), tuple(sorted(self.skipped)))
            facts = facts_of(self.parts.source)
            checkpoint.save(
                self.run.checkpoint, checkpoint.Content(self.place, self.settings.flat(), facts, self.update.state(), history)
            )
        self.fabric.barrier()

    def knn(self) -> float | None:
        """Online kNN accuracy on the test split, or on a part of a large one, where there are labels."""
        source, classes = self.parts.source, len(self.parts.source.classes)
        if not classes or source.test is None:
            return None
        bank, judged = (
            self.extract(self.parts.backbone.module, some(single(part), _KNN_IMAGES)) for part in (source.train, source.test)
        )
        if not (bool((bank.labels >= 0).any()) and bool((judged.labels >= 0).any())):
            return None
        return knn_accuracy(labelled(bank), labelled(judged), classes=classes)

    def _count_skipped(self, names: tuple[str, ...], log: Log | None) -> None:
        new = [name for name in names if name not in self.skipped]
        self.skipped.update(new)
        for name in new:
            _say(log, f"skipped a corrupt image: {name}")


def _say(log: Log | None, text: str) -> None:
    if log is not None:
        log.say(text)
