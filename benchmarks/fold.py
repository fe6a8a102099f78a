"""What the encoder lacks where ER at h = 10 stops at two of three latents: a fold, z and -z at one place along an axis.

A minute of one CPU core a line: python benchmarks/fold.py
"""

import numpy as np
import torch

from entrec.identifiability.lab import Setting, experiment_of
from entrec.identifiability.scores import nonlinear_r2, r2
from entrec.training.draws import generator_of

CPU, ROWS = torch.device("cpu"), 4000
SETTINGS = [("vmf:10", 0.1, 0), ("vmf:10", 0.1, 1), ("vmf:1", 0.1, 0), ("vmf:10", 0.3, 0), ("vmf:10", 1.0, 0)]

print("| conditional | h | seed | R2 | of the axis x that is missing most, by kernel ridge | of x^2 |\n" + "|---" * 6 + "|")
for conditional, bandwidth, seed in SETTINGS:
    sizes = {"dim": 3, "batch": 512, "width": 30, "steps": 3000, "rate": 1e-3, "draws": 1000}  # `--quick`
    setting = Setting(conditional=conditional, bandwidth=bandwidth, seed=seed, **sizes)  # type: ignore[arg-type]
    experiment = experiment_of(setting, CPU)
    list(experiment.run(setting.steps, setting.steps))
    latents = setting.latents.sample(ROWS, generator_of(CPU, seed, 3))
    found = experiment.project(latents)
    z, p = latents.double().numpy(), np.c_[found.double().numpy(), np.ones(ROWS)]
    residual = z - p @ np.linalg.lstsq(p, z, rcond=None)[0]
    axis = np.linalg.eigh(residual.T @ residual)[1][:, -1]
    x = torch.tensor(z @ axis)[:, None]
    scores = [r2(latents, found), nonlinear_r2(x, found), nonlinear_r2(x**2, found)]
    shown = " | ".join(f"{100 * score:.1f}" for score in scores)
    print(f"| {conditional} | {1 / bandwidth:.3g} | {seed} | {shown} |", flush=True)
