"""What looking costs: the lens's share of training's time, as a callback of Lightning's and in `entrec train`.

    entrec bench lens --backbone resnet18 --batch-size 64 --batch-size 256 --out FILE.json

The time within the lens is taken, not that of training with it and without, whose difference is smaller than their noise.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from entrec.bench.results import Machine, machine
from entrec.bench.train import random_source
from entrec.lens.callback import LensCallback
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for, without_advice
from entrec.training.loop import Loop
from entrec.training.module import Pretraining
from entrec.training.run import Run
from entrec.training.settings import settings as run_settings

Way = Literal["LensCallback", "LensCallback, held-out data", "entrec train"]
_STEPS = {"cpu": 120, "cuda": 1200}
_IMAGES = 8192  # in an epoch of `entrec train`
_WARM = 3  # steps that are not counted


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Args:
        run: the settings of the run, but for its batch size.
        batches: sizes of a batch.
        image_size: of the random images.
        steps: of each size.
        every: steps between two looks of the callback.
        held_out: rows of its held-out data.
    """

    run: dict[str, Any]
    batches: tuple[int, ...]
    image_size: int
    steps: int
    every: int
    held_out: int


@dataclass(frozen=True)
class Row:
    """One way to look at one size of a batch.

    Args:
        batch: samples in a step.
        way: how it is looked.
        looks: how many times.
        look_ms: milliseconds of a look, the mean.
        step_ms: of a step without them.
        share: of the lens in training's time.
    """

    batch: int
    way: Way
    looks: int
    look_ms: float
    step_ms: float
    share: float


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured, and the settings of the run as they were understood."""

    settings: Settings
    complete: dict[str, Any]
    machine: Machine
    rows: list[Row]


def settings(
    method: str = "simclr",
    batches: tuple[int, ...] = (),
    image_size: int = 32,
    device: str = "auto",
    steps: int | None = None,
    every: int = 100,
    held_out: int = 512,
    **given: Any,
) -> Settings:
    """Check the choices; `given` are settings of the run: er, backbone, ..."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    run_settings(method, {"device": device, **given})
    steps = _STEPS[device] if steps is None else steps
    for name, value, least in (("every", every, 1), ("held_out", held_out, 2), ("steps", steps, every)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    return Settings({"method": method, "device": device, **given}, batches or (64, 256), image_size, steps, every, held_out)


def run(chosen: Settings, progress: Callable[[str], None] = lambda part: None) -> Benchmark:
    """Measure every batch size; `progress` hears what comes next."""
    device = torch.device(chosen.run["device"])
    where = machine(device)
    rows: list[Row] = []
    complete: dict[str, Any] = {}
    for batch in chosen.batches:
        ways: tuple[Way, ...] = ("LensCallback", "LensCallback, held-out data")
        for way in ways:
            progress(f"batch {batch}: {way}")
            rows.append(_called_back(chosen, batch, way, device))
        progress(f"batch {batch}: entrec train")
        row, complete = _in_train(chosen, batch, device)
        rows.append(row)
    return Benchmark(chosen, complete, where, rows)


class _Stopwatch:
    """Seconds within the lens, and those of training from the first step that counts."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.within, self.looks, self.begin, self.last, self.step = device, 0.0, 0, 0.0, 0.0, 0

    def now(self) -> float:
        """The clock, once the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def stepped(self) -> None:
        """A step is over."""
        self.step += 1
        if self.step == _WARM:
            self.begin = self.now()

    def look(self, function: Callable[[], Any]) -> None:
        """Look, and take the time."""
        begin = self.now()
        function()
        self.within, self.looks = self.within + self.now() - begin, self.looks + 1

    def row(self, batch: int, way: Way) -> Row:
        """What it was."""
        whole = self.now() - self.begin
        step = (whole - self.within) / (self.step - _WARM)
        return Row(batch, way, self.looks, 1e3 * self.within / max(1, self.looks), 1e3 * step, self.within / whole)


class _Timed(LensCallback):
    """The callback under a stopwatch."""

    def __init__(self, watch: _Stopwatch, **given: Any) -> None:
        super().__init__(**given)
        self.watch = watch

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """As the callback does, timed where it looks."""
        work = super().on_train_batch_end
        if trainer.global_step % self.every:
            work(trainer, pl_module, outputs, batch, batch_idx)
        else:
            self.watch.look(lambda: work(trainer, pl_module, outputs, batch, batch_idx))
        self.watch.stepped()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """As the callback does, timed."""
        if self._kept is not None:
            self.watch.look(lambda: super(_Timed, self).on_train_end(trainer, pl_module))


class _Again(IterableDataset[Tensor]):
    """One batch, again and again: what is measured is not how data come."""

    def __init__(self, images: Tensor, times: int) -> None:
        self.images, self.times = images, times

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.times):
            yield self.images


def _called_back(chosen: Settings, batch: int, way: Way, device: torch.device) -> Row:
    source = random_source(max(batch, chosen.held_out), chosen.image_size)
    given = {key: value for key, value in chosen.run.items() if key != "method"}
    parts = assemble(run_settings(chosen.run["method"], {**given, "batch_size": batch}), source)
    module = Pretraining(parts.method, parts.augment, batch_size=batch)
    images = source.train.images  # type: ignore[attr-defined]
    watch = _Stopwatch(device)
    more = {"held_out": images[: chosen.held_out]} if "held-out" in way else {}
    lens = _Timed(watch, every=chosen.every, rows=chosen.held_out, **more)
    with warnings.catch_warnings(), without_advice():
        warnings.simplefilter("ignore")  # of random images nothing is learnt, which the lens says
        trainer = pl.Trainer(
            max_steps=chosen.steps, accelerator=device.type, devices=1, callbacks=[lens], logger=False,
            precision="bf16-mixed" if device.type == "cuda" else "32-true",
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        loader = torch.utils.data.DataLoader(_Again(images[:batch].to(device), chosen.steps), batch_size=None)
        trainer.fit(module, loader)
    return watch.row(batch, way)


def _in_train(chosen: Settings, batch: int, device: torch.device) -> tuple[Row, dict[str, Any]]:
    """One of the looks of `entrec train`, and the steps between two of them in a run of the usual hundred epochs."""
    images = min(_IMAGES, chosen.steps * batch)
    given = {key: x for key, x in chosen.run.items() if key != "method"}
    wanted = run_settings(chosen.run["method"], {"batch_size": batch, "scores": False, **given})
    watch = _Stopwatch(device)
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(fabric_for(wanted), assemble(wanted, random_source(images, chosen.image_size)), Run(Path(folder) / "run"))
        loop.run.checkpoint.parent.mkdir(parents=True)
        epochs = loop.fit(None)
        next(epochs)  # in which kernels are chosen, and steps captured
        loop.looks.take(loop.place.epoch)
        watch.step, watch.begin = _WARM, watch.now()
        next(epochs)
        watch.step += len(loop.feed)
        watch.look(lambda: loop.looks.take(loop.place.epoch))
        found = watch.row(batch, "entrec train")
        between = (loop.settings.evaluate_every or 1) * len(loop.feed) * found.step_ms
        return replace(found, share=found.look_ms / (found.look_ms + between)), {**loop.settings.flat(), "data": "noise"}
