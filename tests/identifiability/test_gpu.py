"""On a GPU: draws are right there, a step is one graph that does what it does without, and faster products find the same."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import special, stats
from torch import Generator

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher
from entrec.identifiability import Box, ContentStyle, Setting, Sphere, identify, isolate
from entrec.identifiability.lab import experiment_of
from entrec.identifiability.laws import Law
from entrec.identifiability.sampling import around, uniform

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
K = 50_000
SPHERE = Setting(conditional="vmf:10", dim=3, batch=512, steps=1500, rate=1e-3, width=30, draws=1000)
SETTINGS = [
    Setting("sphere", "uniform", "vmf:10", "sphere", "vmf:1"),
    Setting("sphere", "normal:1", "laplace:0.05", "sphere", "vmf:1"),
    Setting("box", "uniform", "normal:0.05", "unbounded", "normal"),
    Setting("box", "uniform", "laplace:0.05", "box", "laplace"),
    Setting("box", "uniform", "gennorm:3:0.05", "box", "gennorm:3:0.01"),  # a new encoder's losses at scale 1 are all log 257
    Setting("unbounded", "laplace:1", "normal:1", "unbounded", "normal"),
]


def cuda() -> Generator:
    return Generator("cuda").manual_seed(0)


@pytest.mark.parametrize(
    ("law", "truth"),
    [
        (Gaussian(0.05), stats.norm(0.02, 0.05)),
        (Laplace(0.05), stats.laplace(0.02, 0.05)),
        (GeneralizedNormal(3.0, 0.05), stats.gennorm(3, 0.02, 0.05)),
    ],
)
def test_truncated_laws(law: Law, truth: Any) -> None:
    z = around(torch.full((K, 1), 0.02, device="cuda"), law, Box(1), cuda())
    low = truth.cdf(0)
    assert stats.kstest(z[:, 0].double().cpu().numpy(), lambda x: (truth.cdf(x) - low) / (1 - low)).pvalue > 1e-5


def test_directions() -> None:
    generator = cuda()
    centres = uniform(K, Sphere(10), generator)
    cosines = (around(centres, VonMisesFisher(10.0), Sphere(10), generator) * centres).sum(dim=1)
    assert abs(float(cosines.mean()) - special.iv(5, 10) / special.iv(4, 10)) < 4 * float(cosines.std()) / K**0.5


@pytest.mark.parametrize("precision", ["32", "tf32", "fp16", "bf16"])
@pytest.mark.parametrize("objective", ["infonce", "er"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_step_is_one_graph(setting: Setting, objective: Any, precision: Any) -> None:
    setting = replace(setting, objective=objective, batch=256, steps=12, draws=10, precision=precision)
    experiment = experiment_of(setting, torch.device("cuda"))
    losses = [moment.loss for moment in experiment.run(12, 1)]
    assert experiment.captured is not None
    assert experiment.captured.refused == ""
    assert len(set(losses)) == 12  # each with draws of its own
    assert len(experiment.captured._graphs) == 1


@pytest.mark.parametrize("objective", ["infonce", "er"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_graph_does_what_its_steps_do(setting: Setting, objective: Any) -> None:
    setting = replace(setting, objective=objective, dim=4, batch=256, steps=10, width=10, draws=10)
    captured, eager = (experiment_of(setting, torch.device("cuda")) for _ in range(2))
    eager.captured = None
    for a, b in zip(captured.run(10, 1), eager.run(10, 1), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4, abs=1e-4)
    for p, q in zip(captured.encoder.parameters(), eager.encoder.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("setting", SETTINGS)
def test_projections_and_losses_are_the_cpus(setting: Setting) -> None:
    setting = replace(setting, dim=4, batch=256, width=10, draws=10)
    here, there = experiment_of(setting, torch.device("cpu")), experiment_of(setting, torch.device("cuda"))
    z1, z2 = setting.latents.pairs(256, Generator().manual_seed(0))
    projected = [(here.project(z), there.project(z.cuda())) for z in (z1, z2)]
    for a, b in projected:
        torch.testing.assert_close(b.cpu(), a, atol=1e-4, rtol=1e-4)
    losses = [experiment.loss(*views) for experiment, views in zip((here, there), zip(*projected, strict=True), strict=True)]
    torch.testing.assert_close(losses[1].cpu(), losses[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("objective", ["infonce", "er"])
def test_latents_are_found_in_every_precision(objective: Any) -> None:
    scores = [identify(replace(SPHERE, objective=objective, precision=p), "cuda").r2 for p in ("32", "tf32", "fp16", "bf16")]
    assert min(scores) > 0.95
    assert max(scores) - min(scores) < 0.03  # a short run at a small size: the protocol's cell is measured, not tested


def test_content_and_style_run_as_a_graph_too() -> None:
    found = isolate(ContentStyle(content=2, style=2, batch=256, steps=20, width=10, draws=10, precision="bf16"), "cuda")
    assert found.diverged is None


def test_a_run_that_diverges_says_when() -> None:
    found = identify(
        replace(SPHERE, space="box", conditional="normal:0.05", output="unbounded", model="normal", rate=1e6), "cuda"
    )
    assert found.diverged is not None
