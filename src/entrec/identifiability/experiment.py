"""The step that every experiment repeats: draw pairs of latents, mix them, encode, and follow the loss's gradient."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor
from torch.optim import Adam

from entrec import checks, pairwise
from entrec.compiling import allow_compiling
from entrec.identifiability import words
from entrec.identifiability.laws import LEAST, MOST
from entrec.identifiability.networks import Encoder, Mixing
from entrec.training.captured import Captured
from entrec.training.schedule import warmup_cosine

Precision = Literal["32", "tf32", "fp16", "bf16"]
PAIRWISE: dict[Precision, pairwise.Precision] = {"32": "ieee", "tf32": "fast", "fp16": "fast", "bf16": "fast"}
Schedule = Literal["constant", "cosine"]
Loss = Callable[[Tensor, Tensor], Tensor]
Rates = Callable[[int], float]
COMPILED = 20_000  # steps from which on it pays to compile them
_AHEAD = 32  # steps whose data are drawn at once: what is small for one of them would take a quarter of its time in launches
_LANES = 64  # of matrix units in less than float32
_WARMUP = 50  # of a cosine's steps, one in so many
_HALVES: dict[Precision, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}
# What losses are multiplied by before their gradients are taken: those of single rows, a batch's share each (3e-8), are below
# what float16 can tell from 0, and those of weights, a batch's sum (up to 2), must stay below its end, 65,504. A power of two,
# so that nothing else changes.
_SCALES: dict[Precision, float] = {"fp16": 2.0**10}
_EPSILON = 1e-8  # Adam's


class Draws(NamedTuple):
    """Where pairs of latents come from: a function of how many and of a generator, how many, and the generator."""

    pairs: Callable[[int, Generator], tuple[Tensor, Tensor]]
    batch: int
    generator: Generator


class Moment(NamedTuple):
    """The loss of a step."""

    step: int
    loss: float


class Experiment:
    """An encoder that is trained on mixed latents; on a GPU a step, from data to Adam's update, is one CUDA graph.

    Args:
        draws: where latents come from; their generator is on the device.
        mixing: from latents to data.
        encoder: from data to projections.
        loss: of the projections of both views.
        rates: Adam's learning rate at a step, from 0 on; it is asked once for the steps whose data are drawn together.
        precision: of the encoder's products: `32`, or on a GPU `tf32`, `fp16` or `bf16`.
        compiled: on a GPU, by kernels that are compiled for it, which takes half a minute.
    """

    def __init__(
        self,
        draws: Draws,
        mixing: Mixing,
        encoder: Encoder,
        loss: Loss,
        rates: Rates,
        precision: Precision = "32",
        compiled: bool = False,
    ) -> None:
        self.device = draws.generator.device
        self.draws, self.loss, self.precision = draws, loss, precision
        self.mixing, self.encoder = mixing.to(self.device), encoder.to(self.device)
        if precision != "32":
            self.encoder.pad(_LANES)
        on_gpu = self.device.type == "cuda"
        compiled = compiled and on_gpu
        if compiled:
            allow_compiling()
        # The fused update has a block for 65,536 numbers, so a dozen: it would take an eighth of the step.
        # The rate is a tensor, as a graph reads what is there when it is launched.
        self.rates, self.rate = rates, torch.tensor(rates(0), device=self.device)
        # Adam's step is the same for gradients that are all so many times as large, if its epsilon is too.
        self.scale = _SCALES.get(precision, 1.0)
        epsilon = _EPSILON * self.scale
        self.optimizer = Adam(encoder.parameters(), self.rate, eps=epsilon, fused=not compiled, capturable=on_gpu)
        self.captured = Captured(self._step) if on_gpu else None
        self._objective = torch.compile(self._loss_of, dynamic=False) if compiled else self._loss_of
        self._update = torch.compile(self.optimizer.step) if compiled else self.optimizer.step
        self._drawn: Sequence[Tensor] = ()
        self._used = 0  # of what is drawn
        self._asked = 0  # steps whose data have been drawn
        self._before = draws.generator.get_state()  # of the draws
        self.seconds = 0.0  # of steps
        self._last = torch.zeros((), device=self.device)

    def run(self, steps: int, every: int, done: int = 0) -> Iterator[Moment]:
        """So many steps, with a moment after every few of them and at the end, or where the loss is no number any more.

        Those that are `done`, up to a moment of an earlier run, are not repeated.
        """
        for begin in range(done, steps, every):
            now = min(every, steps - begin)
            moment = Moment(begin + now, self._timed(now))
            yield moment
            if not math.isfinite(moment.loss):
                return

    def state(self) -> dict[str, Any]:
        """Everything that the next step reads, but for what the setting says."""
        draws = {"before": self._before, "asked": self._asked, "used": self._used}
        parts = {"encoder": self.encoder.state_dict(), "optimizer": self.optimizer.state_dict()}
        return {**parts, "draws": draws, "seconds": self.seconds}

    def load(self, state: dict[str, Any]) -> None:
        """Go on where an experiment of the same setting was, before a step of this one's own."""
        self.encoder.load_state_dict(state["encoder"])
        own = [{key: x for key, x in group.items() if key != "params"} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, options in zip(self.optimizer.param_groups, own, strict=True):
            group.update(options)  # the rate is the tensor that is filled, not a copy of it
        draws, self.seconds = state["draws"], state["seconds"]
        if draws["asked"]:
            self.draws.generator.set_state(draws["before"])
            self._asked = draws["asked"] - _AHEAD
            self._draw()
            self._used = draws["used"]

    @torch.no_grad()
    def project(self, z: Tensor) -> Tensor:
        """Projections of latents, through the mixing and the encoder: in float32, whatever precision it is trained with."""
        data = self.mixed(z)
        with _computing(self.device, "32"):
            found: Tensor = self.encoder(data)
        return found

    @torch.no_grad()
    def mixed(self, z: Tensor) -> Tensor:
        """Data of latents: in float32 whatever the encoder's precision, or they would be other data."""
        with _computing(self.device, "32"):
            data: Tensor = self.mixing(z)
        return data

    def _timed(self, steps: int) -> float:
        """The loss of the last of so many steps; the host waits for the device at the end, and only there."""
        begin = time.perf_counter()
        with _computing(self.device, self.precision):
            for _ in range(steps):
                if self.captured is None:
                    self._step(self._next())
                else:
                    self.captured(None, self._next())
            loss = float(self._last)
        self.seconds += time.perf_counter() - begin
        return loss

    def _next(self) -> Tensor:
        """Data of a step, both views', (2 batch, dim)."""
        if self._used == len(self._drawn):
            self._draw()
        self._used += 1
        return self._drawn[self._used - 1]

    def _draw(self) -> None:
        """Data of the next steps, and their rate."""
        k = self.draws.batch
        self.rate.fill_(self.rates(self._asked))
        self._asked += _AHEAD
        self._before = self.draws.generator.get_state()
        views = [z.unflatten(0, (_AHEAD, k)) for z in self.draws.pairs(_AHEAD * k, self.draws.generator)]
        self._drawn, self._used = self.mixed(torch.cat(views, dim=1)).unbind(), 0

    def _encoded(self, data: Tensor) -> Tensor:
        half = _HALVES.get(self.precision)
        with torch.autocast("cuda", half) if half is not None else nullcontext():
            found: Tensor = self.encoder(data)
        return found

    def _loss_of(self, data: Tensor) -> Tensor:
        return self.loss(*self._encoded(data).split(self.draws.batch))

    def _step(self, data: Tensor) -> None:
        loss = self._objective(data)
        self.optimizer.zero_grad(set_to_none=True)
        (loss if self.scale == 1 else self.scale * loss).backward()
        self._update()
        self._last.copy_(loss.detach())


def rates_of(schedule: Schedule, rate: float, steps: int) -> Rates:
    """A rate that stays, or one that rises over the first fiftieth of the steps and falls to 0 by half a cosine."""
    if schedule == "constant":
        return lambda step: rate
    return lambda step: rate * warmup_cosine(step, steps // _WARMUP, steps)


def check_numbers(rate: float, **bandwidths: float) -> None:
    """All are positive, and what float32 can compute with, as the numbers of laws."""
    for name, number, least in (*((name, number, LEAST) for name, number in bandwidths.items()), ("rate", rate, 0.0)):
        checks.positive(name, number)
        if not least <= number <= MOST:
            raise ValueError(f"{name} must be within {least:g} and {MOST:g}, got {number:g}")


def device_for(name: str, precision: Precision = "32") -> torch.device:
    """A device by name, on which products can have the precision; `auto` is a GPU if there is one.

    Raises:
        ValueError: there is no such device, or it has no such products.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (":" in name and not (kind == "cuda" and index.isdigit())):
        raise ValueError(
            f"device must be 'cpu', 'cuda', 'cuda:N' or 'auto', got {name!r}{words.nearest(kind, ('cpu', 'cuda'))}"
        )
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and int(index or 0) >= cards:
        raise ValueError(f"device {name!r} needs a GPU that PyTorch can use, and there {'is' if cards == 1 else 'are'} {cards}")
    if precision != "32" and kind == "cpu":
        raise ValueError(f"precision {precision} needs a GPU; on a CPU it is 32")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """What to call it in results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


@contextmanager
def _computing(device: torch.device, precision: Precision) -> Iterator[None]:
    """On that card, if it is one, with products of float32 matrices in TF32 or not; afterwards all is as it was."""
    products: Any = torch.backends.cuda.matmul
    # Newer versions of PyTorch have another name for it, and the two may not be mixed.
    newer = hasattr(products, "fp32_precision")
    name, value = (
        ("fp32_precision", "tf32" if precision == "tf32" else "ieee") if newer else ("allow_tf32", precision == "tf32")
    )
    before = getattr(products, name)
    setattr(products, name, value)
    try:
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            yield
    finally:
        setattr(products, name, before)
