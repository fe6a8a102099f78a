"""One update: views, loss, backward, optimiser, the method's own updates, and the online probe's."""

import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from lightning.fabric import Fabric
from torch import Tensor
from torch.optim import Optimizer

from entrec.compiling import allow_compiling, why_not
from entrec.methods import Progress, Step, Views
from entrec.training.assemble import Parts, optimizer_of, synchronised
from entrec.training.captured import Captured
from entrec.training.draws import seed_of
from entrec.training.feed import Fed, Feed
from entrec.training.probe import OnlineProbe
from entrec.training.schedule import warmup_cosine

_PIXELS = 2e9  # in all samples of a run, from which on it is compiled: 40 epochs of CIFAR-10
_OWN = ("lr", "fused", "foreach", "capturable")  # of an optimiser's group: what the device asks for, not the run


class Outcome(NamedTuple):
    """What an update leaves to be looked at, on the device: the method's step, and the probe's accuracy before its own."""

    step: Step
    top1: Tensor | None


class Update:
    """Everything that learns or remembers, and the step that changes it.

    All that changes from step to step is set beforehand: seeds of generators, and numbers in tensors on the device. So every
    step runs the same kernels, and on a single GPU they are launched as one graph.

    Args:
        fabric: device, ranks and precision, launched.
        parts: of the run.
        feed: that makes the views.
        total: steps of the run.
    """

    def __init__(self, fabric: Fabric, parts: Parts, feed: Feed, total: int) -> None:
        self.fabric, self.parts, self.feed, self.total, self.settings = fabric, parts, feed, total, parts.settings
        self.method: Any = parts.method
        self.on_gpu = fabric.device.type == "cuda"
        self.optimizer: Optimizer = optimizer_of(parts.settings, parts.method, on_gpu=self.on_gpu)
        self.peaks: list[float] = [group["lr"] for group in self.optimizer.param_groups]
        self.rate = 0.0  # of the last step
        self.rates = [torch.tensor(peak, device=fabric.device) for peak in self.peaks]
        classes = len(parts.source.classes)
        self.probe = OnlineProbe(parts.backbone.width, classes) if classes else None
        self.bad = torch.tensor(-1, device=fabric.device)  # the first step whose loss was no number
        self.done = torch.tensor(0, device=fabric.device)  # steps before this one
        self.generator = torch.Generator(fabric.device)
        self.mark: Callable[[str], None] = _nothing  # hears which part of a step is over: `entrec bench train`
        wanted = _pays(parts) and self.on_gpu if self.settings.compile is None else self.settings.compile
        self.not_compiled = why_not(fabric.device.type) if wanted else ""
        self.compiles = wanted and not self.not_compiled
        self._set_up()
        captures = self.on_gpu and fabric.world_size == 1 and self.settings.capture
        this = weakref.proxy(self)  # no circle: a run that is over gives its memory back at once
        self.captured: Captured[Outcome] | None = None
        if captures:
            self.captured = Captured(lambda *inputs: this._update(*inputs), [self.generator])

    def _set_up(self) -> None:
        """Move everything to the device, and behind DistributedDataParallel where there are several."""
        fabric = self.fabric
        several_gpus = self.on_gpu and fabric.world_size > 1
        if self.on_gpu:
            self.parts.method.to(memory_format=torch.channels_last)
        if several_gpus:
            synchronised(self.parts.method)
        if self.compiles:
            self._compile()
        self.model: Any
        self.model, self.stepper = fabric.setup(self.parts.method, self.optimizer)
        if self.probe is not None:
            if several_gpus:
                synchronised(self.probe)
            self.probe_model, self.probe_stepper = fabric.setup(self.probe, self.probe.optimizer(on_gpu=self.on_gpu))

    def _compile(self) -> None:
        """Compile what has many small kernels between large ones: views, encoders and the probe, each for its own shapes."""
        allow_compiling()
        teacher = getattr(self.method, "teacher", None)
        modules = [self.parts.backbone.module, *getattr(self.method, "other_encoders", ()), self.probe]
        for module in (*modules, None if teacher is None else teacher.module):
            if module is not None:
                module.compile(dynamic=False)
        self.feed.compile()

    def __call__(self, fed: Fed, done: int) -> Outcome:
        """The update after `done` others."""
        how = self._prepare(done, fed.seed)
        if self.captured is None:
            return self._update(fed.labels, fed.places, *fed.crops)
        return self.captured(how, fed.labels, fed.places, *fed.crops)

    def _prepare(self, done: int, seed: int) -> Hashable:
        """Set all that follows from the place in the run."""
        torch.manual_seed(seed_of(self.settings.seed, 2, done, self.fabric.global_rank))
        self.generator.manual_seed(seed)
        self.done.fill_(done)
        factor = self._factor(done)
        self.rate = self.peaks[0] * factor
        for group, peak, rate in zip(self.optimizer.param_groups, self.peaks, self.rates, strict=True):
            group["lr"] = rate.fill_(peak * factor) if self.on_gpu else peak * factor
        return self.method.prepare(Progress(done, self.total)) if hasattr(self.method, "prepare") else None

    def _factor(self, done: int) -> float:
        """Of the peak rate; where it changes with the epochs, the cosine would come to its end with the one after the last."""
        warmup, epochs = self.settings.warmup, self.settings.epochs
        if self.settings.rate_changes == "epoch":
            return warmup_cosine(done // len(self.feed), round(warmup * epochs), epochs + 1)
        return warmup_cosine(done, round(warmup * self.total), self.total)

    def _update(self, labels: Tensor, places: Tensor, *crops: Tensor) -> Outcome:
        self.mark("")
        views = self.feed.views(crops, places, self.generator)
        self.mark("views")
        step: Step = self.model(Views(views, places, self.parts.augment.recipe.full))
        self.mark("forward")
        self.fabric.backward(step.loss)
        self.mark("backward")
        if hasattr(self.method, "before_step"):
            self.method.before_step()
        self.stepper.step()
        self.stepper.zero_grad(set_to_none=True)
        self.mark("optimiser")
        if hasattr(self.method, "update"):
            self.method.update(step)
        self.mark("memory")
        self.bad.copy_(torch.where((self.bad < 0) & ~step.loss.detach().isfinite(), self.done, self.bad))
        top1 = self._probe_update(step.features, labels)
        self.mark("probe")
        return Outcome(step.detached(), top1)

    def _probe_update(self, features: Tensor, labels: Tensor) -> Tensor | None:
        if self.probe is None:
            return None
        loss, top1 = self.probe_model(features, labels)
        self.fabric.backward(loss)
        self.probe_stepper.step()
        self.probe_stepper.zero_grad(set_to_none=True)
        found: Tensor = top1
        return found

    def state(self) -> dict[str, Any]:
        """The state dicts of everything that learns or remembers."""
        parts: dict[str, Any] = {"method": self.parts.method.state_dict(), "optimizer": self.optimizer.state_dict()}
        if self.probe is not None:
            parts |= {"probe": self.probe.state_dict(), "probe_optimizer": self.probe_stepper.state_dict()}
        return parts

    def load(self, parts: dict[str, Any]) -> None:
        """Take over a state, of this device or another."""
        self.parts.method.load_state_dict(parts["method"])
        _load(self.optimizer, parts["optimizer"])
        if self.probe is not None:
            self.probe.load_state_dict(parts["probe"])
            _load(self.probe_stepper, parts["probe_optimizer"])

    def forget(self, parameter: Tensor) -> None:
        """Begin the optimiser's memory of a parameter anew, in place: a captured step goes on using it."""
        for value in self.optimizer.state.get(parameter, {}).values():
            if isinstance(value, Tensor):
                value.zero_()


def _pays(parts: Parts) -> bool:
    """Whether compiled kernels save more time on a GPU than it takes to make them: for all but short runs.

    Made in half a minute, they save 13 microseconds of a sample of 32 x 32 pixels (ResNet-18 on an H200), at any batch size.
    """
    assert parts.settings.image_size is not None  # filled in by `assemble`
    samples = parts.settings.epochs * len(parts.source.train)  # type: ignore[arg-type]
    return samples * parts.settings.image_size**2 >= _PIXELS


def _nothing(part: str) -> None:
    pass


def _load(optimizer: Any, state: dict[str, Any]) -> None:
    own = [{key: group[key] for key in _OWN if key in group} for group in optimizer.param_groups]
    groups = [{**group, **kept} for group, kept in zip(state["param_groups"], own, strict=True)]
    optimizer.load_state_dict({**state, "param_groups": groups})
    for parameter, memory in optimizer.state.items():
        for key, value in memory.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:  # in the parameter's own order in memory
                memory[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
