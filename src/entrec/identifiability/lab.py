"""One experiment: latents are mixed, an encoder is trained on pairs of data, and what it finds is scored against them."""

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal

import torch
from torch import Generator

from entrec import checks
from entrec.identifiability import laws, words
from entrec.identifiability.experiment import (
    COMPILED,
    PAIRWISE,
    Draws,
    Experiment,
    Loss,
    Precision,
    Schedule,
    check_numbers,
    device_for,
    device_name,
    rates_of,
)  # fmt: skip
from entrec.identifiability.latents import Latents
from entrec.identifiability.laws import Law
from entrec.identifiability.networks import networks
from entrec.identifiability.objectives import er_loss, infonce_loss
from entrec.identifiability.sampling import check_fit
from entrec.identifiability.scores import mcc, r2
from entrec.identifiability.spaces import SpaceName, space_named
from entrec.identifiability.unfinished import go_on, keep
from entrec.training.draws import generator_of

Objective = Literal["infonce", "er"]
_POINTS = 20  # of the curve
_BATCHES = 10  # fresh ones, over which scores are averaged


@dataclass(frozen=True)
class Setting:
    """What to run; defaults are the paper's protocol (Appendix C), but for the number of steps.

    Args:
        space: of the latents: sphere, box or unbounded.
        marginal: law of the first view's latents, as a word: uniform, normal:1, ...
        conditional: law of the second view's around them: vmf:10, normal:0.05, laplace:0.05, gennorm:3:0.05, ...
        output: space of the projections.
        model: the density q, as a word: vmf:1, normal, laplace, gennorm:3.
        objective: infonce or er.
        bandwidth: of the model's density in both terms of ER.
        dim: latents.
        batch: pairs in a step.
        steps: of Adam.
        rate: its learning rate.
        schedule: the rate stays (`constant`), or it rises over the first fiftieth of the steps and falls to 0 (`cosine`).
        seed: of the mixing, the encoder and all draws.
        width: of the encoder's wide layers, in dims.
        draws: matrices that each of the mixing's is the best-conditioned of.
        precision: of the encoder's products; `32`, and on a GPU also `tf32`, `fp16` or `bf16`.
    """

    space: SpaceName = "sphere"
    marginal: str = "uniform"
    conditional: str = "vmf:1"
    output: SpaceName = "sphere"
    model: str = "vmf:1"
    objective: Objective = "er"
    bandwidth: float = 1.0
    dim: int = 10
    batch: int = 6144
    steps: int = 300_000
    rate: float = 1e-4
    seed: int = 0
    width: int = 50
    draws: int = 25_000
    precision: Precision = "32"
    schedule: Schedule = "constant"

    def __post_init__(self) -> None:
        """Refuse, before anything is computed, what cannot be."""
        for name, kind in (("space", SpaceName), ("output", SpaceName), ("objective", Objective)):
            words.choice(name, getattr(self, name), kind)
        for name, kind in (("precision", Precision), ("schedule", Schedule)):
            words.choice(name, getattr(self, name), kind)
        for name, least in (("dim", 2), ("steps", 1), ("seed", 0), ("width", 5), ("draws", 1), ("batch", 4)):
            checks.whole(name, getattr(self, name), least)
        if self.batch <= self.dim + 1:
            raise ValueError(f"batch must be larger than dim + 1, or it cannot be scored, got {self.batch} for dim {self.dim}")
        check_numbers(self.rate, bandwidth=self.bandwidth)
        if self.objective == "infonce" and self.bandwidth != 1:
            raise ValueError(f"bandwidth is of ER: InfoNCE has the model as it is, got bandwidth {self.bandwidth:g}")
        _ = self.latents  # refuses what cannot be drawn
        check_fit(self.density, space_named(self.output, self.dim))
        if self.output == "sphere" and not self.density.on_sphere:
            raise ValueError(f"projections on the sphere need the model vmf:KAPPA, got {self.model!r}")

    @property
    def latents(self) -> Latents:
        """The generative process."""
        conditional = laws.law(self.conditional)
        if conditional is None:
            raise ValueError("conditional must tell something of the second view, got 'uniform'")
        return Latents(space_named(self.space, self.dim), laws.law(self.marginal), conditional)

    @property
    def density(self) -> Law:
        """The model's density."""
        return laws.model(self.model)


@dataclass(frozen=True)
class Point:
    """Scores on the way: after so many steps, on one fresh batch."""

    step: int
    loss: float
    r2: float
    mcc: float


@dataclass(frozen=True)
class Result:
    """What came out.

    Args:
        setting: that it is of.
        r2: R2 after a linear regression, the mean over ten fresh batches; NaN where the run diverged.
        mcc: mean correlation after the best assignment, likewise.
        r2_mixed: R2 of the data themselves: what there was to gain.
        mcc_mixed: likewise.
        diverged: the step by which the loss or the projections were no numbers any more; None where they were to the end.
        curve: scores on the way.
        seconds: of training, without the scores.
        device: its name.
    """

    setting: Setting
    r2: float
    mcc: float
    r2_mixed: float
    mcc_mixed: float
    diverged: int | None
    curve: list[Point]
    seconds: float
    device: str

    @property
    def steps_per_second(self) -> float:
        """Of training."""
        return self.curve[-1].step / self.seconds


def experiment_of(setting: Setting, device: torch.device, compiled: bool | None = None) -> Experiment:
    """What a setting trains, before its first step; compiled on a GPU where that pays, or as asked."""
    mixing, encoder = networks(
        setting.seed, setting.dim, space_named(setting.output, setting.dim), setting.width, setting.draws
    )
    density, pairwise = setting.density, PAIRWISE[setting.precision]
    if setting.objective == "infonce":
        loss: Loss = partial(infonce_loss, density=density, precision=pairwise)
    else:
        loss = partial(er_loss, density=density, bandwidth=setting.bandwidth, precision=pairwise)
    draws = Draws(setting.latents.pairs, setting.batch, generator_of(device, setting.seed, 2))
    compiled = setting.steps >= COMPILED if compiled is None else compiled
    rates = rates_of(setting.schedule, setting.rate, setting.steps)
    return Experiment(draws, mixing, encoder, loss, rates, setting.precision, compiled)


def _scores(experiment: Experiment, latents: Latents, generator: Generator, batches: int) -> tuple[float, float]:
    """R2 and MCC, the means over fresh batches; NaN where projections are no numbers."""
    found = []
    for _ in range(batches):
        z = latents.sample(experiment.draws.batch, generator)
        projections = experiment.project(z)
        if not bool(projections.isfinite().all()):
            return math.nan, math.nan
        found.append((r2(z, projections), mcc(z, projections)))
    return fmean(x for x, _ in found), fmean(x for _, x in found)


def identify(
    setting: Setting,
    device: str = "auto",
    progress: Callable[[Point], None] = lambda point: None,
    resume: Path | None = None,
) -> Result:
    """Run a setting.

    Args:
        setting: to run.
        device: cpu, cuda, or auto: a GPU if there is one.
        progress: hears every point of the curve.
        resume: a file that keeps where the run is, at every point, and from which it goes on if it is there: on a CPU it ends
            bit for bit as one that was not stopped. To be removed when the result is safe.

    Example:
        >>> small = Setting(dim=2, batch=64, steps=2, width=5, draws=10)
        >>> identify(small, "cpu").curve[-1].step
        2
    """
    where = device_for(device, setting.precision)
    experiment, latents = experiment_of(setting, where), setting.latents
    judge = generator_of(where, setting.seed, 3)
    z = latents.sample(setting.batch, judge)
    mixed = experiment.mixed(z)
    before = (r2(z, mixed), mcc(z, mixed))
    curve = [Point(*x) for x in go_on(resume, setting, experiment, judge)]
    done = curve[-1].step if curve else 0
    for moment in experiment.run(setting.steps, max(1, setting.steps // _POINTS), done):
        curve.append(Point(*moment, *_scores(experiment, latents, judge, 1)))
        keep(resume, setting, experiment, judge, [astuple(point) for point in curve])
        progress(curve[-1])
    scores = _scores(experiment, latents, judge, _BATCHES)
    fine = math.isfinite(curve[-1].loss) and math.isfinite(scores[0])
    diverged = None if fine else curve[-1].step
    scores = scores if fine else (math.nan, math.nan)
    return Result(setting, *scores, *before, diverged, curve, experiment.seconds, device_name(where))
