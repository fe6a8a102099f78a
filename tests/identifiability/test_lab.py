import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from entrec.identifiability import Result, Setting, identify, lab

TINY = Setting(conditional="vmf:10", dim=2, batch=32, steps=40, rate=1e-3, width=5, draws=10)
SPHERE = Setting(conditional="vmf:10", dim=3, batch=512, steps=800, rate=1e-3, width=30, draws=1000)
BOX = Setting(
    "box", "uniform", "laplace:0.05", "box", "laplace:0.05", dim=3, batch=512, steps=1500, rate=1e-3, width=30, draws=1000
)


def run(setting: Setting) -> Result:
    return replace(identify(setting, "cpu"), seconds=0.0)


def test_a_run_repeats_bit_for_bit_and_another_seed_is_another_run() -> None:
    first = run(TINY)
    torch.rand(3)  # what others draw is no matter
    assert run(TINY) == first
    other = run(replace(TINY, seed=1))
    assert other.r2 != first.r2
    assert other.r2_mixed != first.r2_mixed
    assert other.curve[0].loss != first.curve[0].loss


def test_a_result_says_what_happened_on_the_way() -> None:
    heard: list[lab.Point] = []
    found = identify(TINY, "cpu", heard.append)
    assert found.curve == heard
    assert [point.step for point in heard] == list(range(2, 41, 2))
    assert found.diverged is None
    assert found.device == "CPU"
    assert found.steps_per_second == 40 / found.seconds
    assert all(0 <= x <= 1 for x in (found.r2, found.mcc, found.r2_mixed, found.mcc_mixed))


def test_a_run_that_diverges_says_when() -> None:
    free = Setting("unbounded", "normal:1", "normal:1", "unbounded", "normal", dim=2, batch=32, steps=40, width=5, draws=10)
    found = run(replace(free, rate=1e6))
    assert found.diverged == 2
    assert math.isnan(found.r2)
    assert math.isnan(found.mcc)
    assert len(found.curve) == 1


@pytest.mark.parametrize("objective", ["infonce", "er"])
@pytest.mark.parametrize(
    "setting",
    [
        Setting("sphere", "normal:1", "laplace:0.05", "sphere", "vmf:1"),
        Setting("box", "uniform", "gennorm:3:0.05", "box", "gennorm:3"),
        Setting("box", "uniform", "laplace:0.05", "unbounded", "normal"),
        Setting("unbounded", "laplace:1", "normal:1", "unbounded", "laplace"),
    ],
)
def test_every_kind_of_setting_runs(objective: Any, setting: Setting) -> None:
    assert run(replace(setting, objective=objective, dim=2, batch=32, steps=3, width=5, draws=10)).diverged is None


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"space": "unbounded", "conditional": "normal:1"}, "marginal uniform needs a bounded space, got unbounded"),
    ({"space": "box"}, "needs the sphere, got box"),
    ({"space": "box", "conditional": "normal:1", "marginal": "vmf:1"}, "needs the sphere, got box"),
    ({"output": "box"}, "needs the sphere, got box"),
    ({"output": "sphere", "model": "normal"}, "projections on the sphere need the model vmf:KAPPA, got 'normal'"),
    ({"conditional": "uniform"}, "conditional must tell something"),
    ({"model": "uniform"}, "a model must be"),
    ({"conditional": "vmf:-1"}, "within 1e-06"),
    ({"model": "vmf:0"}, "within 1e-06"),
    ({"bandwidth": 0.0}, "bandwidth must be positive and finite, got 0.0"),
    ({"bandwidth": 1e-40}, "bandwidth must be within 1e-06 and 1e\\+06, got 1e-40"),
    ({"objective": "infonce", "bandwidth": 10.0}, "bandwidth is of ER: InfoNCE has the model as it is, got bandwidth 10"),
    ({"rate": -1.0}, "rate must be positive and finite"),
    ({"rate": 1e300}, "rate must be within 0 and 1e\\+06, got 1e\\+300"),
    ({"conditional": "laplace:1e39"}, "within 1e-06"),
    ({"steps": 0}, "steps must be at least 1, got 0"),
    ({"dim": 1}, "dim must be at least 2"),
    ({"seed": -1}, "seed must be at least 0"),
    ({"width": 4}, "width must be at least 5"),
    ({"draws": 0}, "draws must be at least 1"),
    ({"batch": 11}, "batch must be larger than dim \\+ 1"),
    ({"space": "sfere"}, "space must be one of .* did you mean 'sphere'"),
    ({"output": "boxes"}, "output must be one of .* did you mean 'box'"),
    ({"objective": "infonse"}, "objective must be one of .* did you mean 'infonce'"),
    ({"precision": "bf61"}, "precision must be one of .* did you mean 'bf16'"),
    ({"schedule": "cosin"}, "schedule must be one of .* did you mean 'cosine'"),
    ({"marginal": "unform"}, "did you mean 'uniform'"),
]


@pytest.mark.parametrize(("given", "said"), IMPOSSIBLE)
def test_what_cannot_be_is_refused_when_it_is_asked_for(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Setting(**given)


def test_a_precision_that_the_device_lacks_is_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(lab, "networks")
    with pytest.raises(ValueError, match="precision bf16 needs a GPU"):
        identify(replace(TINY, precision="bf16"), "cpu")


@pytest.mark.parametrize("objective", ["er", pytest.param("infonce", marks=pytest.mark.slow)])
def test_on_the_sphere_latents_are_found_up_to_linear_maps(objective: Any) -> None:
    found = identify(replace(SPHERE, objective=objective), "cpu")
    assert found.r2 > 0.95
    assert found.r2 > found.r2_mixed + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["infonce", "er"])
def test_in_a_box_latents_are_found_up_to_order_and_scale(objective: Any) -> None:
    found = identify(replace(BOX, objective=objective), "cpu")
    assert found.mcc > 0.97
    assert found.mcc > found.mcc_mixed + 0.2
