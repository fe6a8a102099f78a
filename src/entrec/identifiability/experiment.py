"""The step that every experiment repeats: draw pairs of latents, mix them, encode, and follow the loss's gradient."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor
from torch.optim import Adam

from entrec import pairwise
from entrec.identifiability import words
from entrec.identifiability.networks import Encoder, Mixing
from entrec.training.captured import Captured

Precision = Literal["32", "tf32", "bf16"]
PAIRWISE: dict[Precision, pairwise.Precision] = {"32": "ieee", "tf32": "fast", "bf16": "fast"}
Loss = Callable[[Tensor, Tensor], Tensor]


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
    """An encoder that is trained on mixed latents; on a GPU a step, from its draws to Adam's update, is one CUDA graph.

    Args:
        draws: where latents come from; their generator is on the device.
        mixing: from latents to data.
        encoder: from data to projections.
        loss: of the projections of both views.
        rate: Adam's learning rate.
        precision: of the encoder's products: `32`, or on a GPU `tf32` or `bf16`.
    """

    def __init__(
        self, draws: Draws, mixing: Mixing, encoder: Encoder, loss: Loss, rate: float, precision: Precision = "32"
    ) -> None:
        self.device = draws.generator.device
        self.draws, self.loss, self.precision = draws, loss, precision
        self.mixing, self.encoder = mixing.to(self.device), encoder.to(self.device)
        on_gpu = self.device.type == "cuda"
        self.optimizer = Adam(encoder.parameters(), rate, fused=True, capturable=on_gpu)
        self.captured = Captured(self._step, [draws.generator]) if on_gpu else None
        self.seconds = 0.0  # of steps
        self._last = torch.zeros((), device=self.device)

    def run(self, steps: int, every: int) -> Iterator[Moment]:
        """So many steps, with a moment after every few of them and at the end, or where the loss is no number any more."""
        for begin in range(0, steps, every):
            now = min(every, steps - begin)
            moment = Moment(begin + now, self._timed(now))
            yield moment
            if not math.isfinite(moment.loss):
                return

    @torch.no_grad()
    def project(self, z: Tensor) -> Tensor:
        """Projections of latents, through the mixing and the encoder."""
        with _computing(self.device, self.precision):
            return self._projected(z)

    def _timed(self, steps: int) -> float:
        """The loss of the last of so many steps; the host waits for the device at the end, and only there."""
        begin = time.perf_counter()
        with _computing(self.device, self.precision):
            for _ in range(steps):
                if self.captured is None:
                    self._step()
                else:
                    self.captured(None)
            loss = float(self._last)
        self.seconds += time.perf_counter() - begin
        return loss

    def _projected(self, z: Tensor) -> Tensor:
        data = self.mixing(z)
        with torch.autocast("cuda", torch.bfloat16) if self.precision == "bf16" else nullcontext():
            found: Tensor = self.encoder(data)
        return found

    def _step(self) -> None:
        both = self._projected(torch.cat(self.draws.pairs(self.draws.batch, self.draws.generator)))
        loss = self.loss(*both.split(self.draws.batch))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self._last.copy_(loss.detach())


def device_for(name: str, precision: Precision = "32") -> torch.device:
    """A device by name, on which products can have the precision; `auto` is a GPU if there is one.

    Raises:
        ValueError: there is no such device, or it has no such products.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
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
