"""Does maximising the bound keep what views share, and drop what they do not? The paper's theorem on semantic isolation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Generator, Tensor

from entrec import checks
from entrec.estimators import Gaussian
from entrec.identifiability import words
from entrec.identifiability.experiment import (
    COMPILED,
    PAIRWISE,
    Draws,
    Experiment,
    Precision,
    Schedule,
    check_numbers,
    device_for,
    device_name,
    rates_of,
)  # fmt: skip
from entrec.identifiability.networks import networks
from entrec.identifiability.objectives import er_loss
from entrec.identifiability.scores import nonlinear_r2, r2
from entrec.identifiability.spaces import Box
from entrec.identifiability.unfinished import go_on, keep
from entrec.training.draws import generator_of

_POINTS = 10
_JUDGED = 4096  # rows of the regressions


@dataclass(frozen=True)
class ContentStyle:
    """What to run: latents [s, u], of which an augmentation changes a random part of the style u, and nothing of the content s.

    The numerical experiment of von Kuegelgen et al. (2021), Section 5.1, with the ER bound: content and style are standard
    normal, each style variable is changed with probability `change`, by standard normal noise.

    Args:
        content: variables of s.
        style: variables of u.
        change: probability that a style variable changes.
        outputs: coordinates of the projections, in (0, 1) each; None: as many as there is content, as in the theorem.
        bandwidth: b of q, proportional to exp(-|z2 - z1|^2 / b^2); the theorem's is b = 1.
        kernel: that of the entropy's kernel; None: b too. With 1 the kernel is about as wide as the cube, and the entropy's
            estimate largest with all points on the cube's corners; with 0.1 it is so on ten places along a side.
        batch: pairs in a step.
        steps: of Adam.
        rate: its learning rate.
        schedule: the rate stays (`constant`), or it rises over the first fiftieth of the steps and falls to 0 (`cosine`).
        seed: of the mixing, the encoder and all draws.
        width: of the encoder's wide layers, in dims.
        draws: matrices that each of the mixing's is the best-conditioned of.
        precision: of the encoder's products; `32`, and on a GPU also `tf32`, `fp16` or `bf16`.

    Example:
        >>> z1, z2 = ContentStyle(content=2, style=1).pairs(4, torch.Generator().manual_seed(0))
        >>> (z1 == z2)[:, :2].all()
        tensor(True)
    """

    content: int = 5
    style: int = 5
    change: float = 0.75
    outputs: int | None = None
    bandwidth: float = 0.1
    kernel: float | None = None
    batch: int = 6144
    steps: int = 50_000
    rate: float = 1e-4
    seed: int = 0
    width: int = 50
    draws: int = 25_000
    precision: Precision = "32"
    schedule: Schedule = "constant"

    def __post_init__(self) -> None:
        """Refuse, before anything is computed, what cannot be."""
        words.choice("precision", self.precision, Precision)
        words.choice("schedule", self.schedule, Schedule)
        for name, least in (("content", 1), ("style", 1), ("steps", 1), ("seed", 0), ("batch", 4), ("width", 5), ("draws", 1)):
            checks.whole(name, getattr(self, name), least)
        if self.outputs is not None:
            checks.whole("outputs", self.outputs, 1)
        if not 0 < self.change <= 1:
            raise ValueError(f"change must be a probability above 0, or style would be content, got {self.change}")
        check_numbers(self.rate, bandwidth=self.bandwidth, **({} if self.kernel is None else {"kernel": self.kernel}))

    @property
    def dim(self) -> int:
        """Of latents and data."""
        return self.content + self.style

    def pairs(self, k: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Latents [s, u] of both views, (k, dim) each."""
        z1 = torch.randn(k, self.dim, generator=generator, device=generator.device)
        changed = torch.rand(k, self.style, generator=generator, device=generator.device) < self.change
        noise = torch.randn(k, self.style, generator=generator, device=generator.device)
        style = z1[:, self.content :] + changed * noise
        return z1, torch.cat([z1[:, : self.content], style], dim=1)


@dataclass(frozen=True)
class Isolation:
    """How well content and style can be told from projections.

    Args:
        setting: that it is of.
        content: R2 of a linear and of a kernel ridge regression of the content.
        style: the same of the style.
        diverged: the step by which the loss or the projections were no numbers any more; None where they were to the end.
        curve: steps and losses.
        seconds: of training.
        device: its name.
    """

    setting: ContentStyle
    content: tuple[float, float]
    style: tuple[float, float]
    diverged: int | None
    curve: list[tuple[int, float]]
    seconds: float
    device: str


def isolate(
    setting: ContentStyle,
    device: str = "auto",
    progress: Callable[[int, float], None] = lambda *_: None,
    resume: Path | None = None,
) -> Isolation:
    """Run a setting; `progress` hears steps and losses, and `resume` is as in `identify`."""
    where = device_for(device, setting.precision)
    out = Box(setting.content if setting.outputs is None else setting.outputs)
    mixing, encoder = networks(setting.seed, setting.dim, out, setting.width, setting.draws, learnt_bounds=False)
    draws = Draws(setting.pairs, setting.batch, generator_of(where, setting.seed, 2))
    density, pairwise = Gaussian(math.sqrt(0.5)), PAIRWISE[setting.precision]  # exp(-|z2 - z1|^2)
    loss = partial(er_loss, density=density, bandwidth=setting.bandwidth, precision=pairwise, kernel=setting.kernel)
    rates = rates_of(setting.schedule, setting.rate, setting.steps)
    experiment = Experiment(draws, mixing, encoder, loss, rates, setting.precision, setting.steps >= COMPILED)
    judge = generator_of(where, setting.seed, 3)
    curve = [(int(step), float(loss)) for step, loss in go_on(resume, setting, experiment, judge)]
    done = curve[-1][0] if curve else 0
    for moment in experiment.run(setting.steps, max(1, setting.steps // _POINTS), done):
        curve.append((moment.step, moment.loss))
        keep(resume, setting, experiment, judge, curve)
        progress(*moment)
    z, _ = setting.pairs(_JUDGED, judge)
    projections = experiment.project(z)
    fine = bool(projections.isfinite().all()) and math.isfinite(curve[-1][1])
    parts = (z[:, : setting.content], z[:, setting.content :])
    content, style = ((r2(x, projections), nonlinear_r2(x, projections)) if fine else (math.nan, math.nan) for x in parts)
    diverged = None if fine else curve[-1][0]
    return Isolation(setting, content, style, diverged, curve, experiment.seconds, device_name(where))
