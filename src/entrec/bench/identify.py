"""How fast the experiments on identifiability run: steps a second, from draws of latents to Adam's update.

entrec bench identify --precision 32 --precision tf32 --precision fp16 --out FILE.json
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from typing import Any, get_args

import torch

from entrec.bench.results import Machine, machine
from entrec.identifiability import words
from entrec.identifiability.experiment import Experiment, Precision, device_for
from entrec.identifiability.lab import Objective, Setting, experiment_of
from entrec.identifiability.networks import Encoder

PUBLISHED = 61.0  # steps/s of brendel-group/cl-ica at batch 6144 in 10 dimensions on one H200
_WARM = 8  # steps that are not counted: on a GPU the first three are eager, and the fourth is captured
_MATRICES = 100  # of which the mixing's are the best: what they are takes no time of a step
_BATCH, _STEPS = {"cpu": 512, "cuda": 6144}, {"cpu": 20, "cuda": 2000}
_PRECISIONS = {"cpu": ("32",), "cuda": get_args(Precision)}
_SETTINGS = {  # of each model, one as in the paper's tables
    "vmf:1": Setting("sphere", "uniform", "vmf:10", "sphere", "vmf:1"),
    "normal": Setting("box", "uniform", "normal:0.05", "unbounded", "normal"),
    "laplace": Setting("box", "uniform", "laplace:0.05", "box", "laplace"),
    "gennorm:3": Setting("box", "uniform", "gennorm:3:0.05", "box", "gennorm:3"),
}


@dataclass(frozen=True)
class Settings:
    """What to measure: every setting, for so many steps on a device."""

    settings: list[Setting]
    device: str
    steps: int


@dataclass(frozen=True)
class Row:
    """One setting.

    Args:
        model: the density q.
        objective: infonce or er.
        precision: of products.
        steps_per_second: of training.
        tflops: operations of the encoder's products, forward and backward, a second, in 10^12.
        graph: a step was one CUDA graph, or why it was not.
    """

    model: str
    objective: Objective
    precision: Precision
    steps_per_second: float
    tflops: float
    graph: str


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured."""

    settings: Settings
    machine: Machine
    rows: list[Row]


def settings(
    objectives: Sequence[str] = (),
    models: Sequence[str] = (),
    precisions: Sequence[str] = (),
    dim: int = 10,
    batch: int | None = None,
    steps: int | None = None,
    device: str = "auto",
) -> Settings:
    """Check the choices; where there is none, all that the tables or the device have, and sizes that suit the device."""
    kind = device_for(device).type
    for name in models:
        if name not in _SETTINGS:
            known = ", ".join(map(repr, _SETTINGS))
            raise ValueError(f"model must be one of {known}, got {name!r}{words.nearest(name, _SETTINGS)}")
    sizes: dict[str, Any] = {"dim": dim, "batch": _BATCH[kind] if batch is None else batch}
    sizes |= {"steps": _STEPS[kind] if steps is None else steps, "draws": _MATRICES}
    choices: Any = (models or _SETTINGS, objectives or get_args(Objective), precisions or _PRECISIONS[kind])
    found = [replace(_SETTINGS[m], objective=o, precision=p, **sizes) for m, o, p in product(*choices)]
    for setting in found:
        device_for(device, setting.precision)
    return Settings(found, kind if device == "auto" else device, sizes["steps"])


def run(chosen: Settings, progress: Callable[[str], None] = lambda part: None) -> Benchmark:
    """Measure every setting; `progress` hears what comes next."""
    device = device_for(chosen.device)
    where = machine(device)
    rows = []
    for setting in chosen.settings:
        progress(f"{setting.objective}, {setting.model}, precision {setting.precision}")
        rows.append(_measured(setting, chosen.steps, device))
    return Benchmark(chosen, where, rows)


def _measured(setting: Setting, steps: int, device: torch.device) -> Row:
    experiment = experiment_of(setting, device, compiled=True)
    list(experiment.run(_WARM, _WARM))
    experiment.seconds = 0.0
    list(experiment.run(steps, steps))
    rate = steps / experiment.seconds
    operations = encoder_operations(experiment.encoder, 2 * setting.batch)
    return Row(setting.model, setting.objective, setting.precision, rate, rate * operations / 1e12, _graph(experiment))


def encoder_operations(encoder: Encoder, rows: int) -> int:
    """Of the products in a step: forward, and backward in weights and in inputs, with two for each entry."""
    return 3 * 2 * rows * sum(i * o for i, o in pairwise(encoder.widths))


def _graph(experiment: Experiment) -> str:
    if experiment.captured is None:
        return "-"
    return f"no: {experiment.captured.refused}" if experiment.captured.refused else "yes"


def sizes_of(benchmark: Benchmark) -> dict[str, Any]:
    """What all settings share, for the tables."""
    return {key: x for key, x in asdict(benchmark.settings.settings[0]).items() if key in ("dim", "batch", "steps")}
