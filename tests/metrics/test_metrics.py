from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

import entrec
from entrec import Gaussian, VonMisesFisher
from entrec.metrics import (
    Alignment,
    DiscreteEntropy,
    DiscreteReconstruction,
    EffectiveRank,
    ERBoundMetric,
    InfoNCEBound,
    KDEEntropy,
    Reconstruction,
    Uniformity,
)
from tests.ranks import on_ranks

VMF = VonMisesFisher(10.0)
DIM = 6

# Every metric beside the function that it must equal on all data at once.
CASES: dict[str, tuple[Callable[[], Metric], Callable[..., Tensor], int]] = {
    "entropy": (lambda: KDEEntropy(VMF), lambda z: entrec.kde_entropy(z, VMF, leave_one_out=True), 1),
    "entropy, plug-in": (
        lambda: KDEEntropy(Gaussian(0.5), "plugin", leave_one_out=False),
        lambda z: entrec.kde_entropy(z, Gaussian(0.5), "plugin"),
        1,
    ),
    "er bound": (
        lambda: ERBoundMetric(VMF, VonMisesFisher(5.0)),
        lambda z1, z2: entrec.er_bound(z1, z2, VMF, VonMisesFisher(5.0), leave_one_out=True).value,
        2,
    ),
    "infonce": (lambda: InfoNCEBound(VMF), lambda z1, z2: entrec.infonce_bound(z1, z2, VMF), 2),
    "uniformity": (lambda: Uniformity(t=3.0), lambda z: entrec.uniformity(z, t=3.0), 1),
    "effective rank": (EffectiveRank, entrec.effective_rank, 1),
    "reconstruction": (lambda: Reconstruction(VMF), lambda z1, z2: entrec.reconstruction(z1, z2, VMF), 2),
    "alignment": (lambda: Alignment(alpha=1.0), lambda z1, z2: entrec.alignment(z1, z2, alpha=1.0), 2),
    "discrete entropy": (lambda: DiscreteEntropy(DIM), lambda z: entrec.discrete_entropy(z.softmax(-1)), 1),
    "discrete reconstruction": (
        DiscreteReconstruction,
        lambda z1, z2: entrec.discrete_reconstruction(z1.softmax(-1), z2.log_softmax(-1)),
        2,
    ),
}


def _arguments(name: str, z1: Tensor, z2: Tensor) -> tuple[Tensor, ...]:
    if name == "discrete entropy":
        return (z1.softmax(-1),)
    if name == "discrete reconstruction":
        return z1.softmax(-1), z2.log_softmax(-1)
    return (z1, z2)[: CASES[name][2]]


def _pairs(k: int) -> tuple[Tensor, Tensor]:
    z1 = torch.randn(k, DIM)
    return z1, z1 + 0.3 * torch.randn(k, DIM)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_value_is_the_functions_on_all_data_at_any_batch_size(name: str, batch_size: int) -> None:
    make, function, arity = CASES[name]
    z1, z2 = _pairs(100)
    metric = make()
    for a, b in zip(z1.split(batch_size), z2.split(batch_size), strict=True):
        metric.update(*_arguments(name, a, b))
    torch.testing.assert_close(metric.compute(), function(*(z1, z2)[:arity]), rtol=1e-5, atol=1e-5)


def _value_on_rank(rank: int, world_size: int, name: str, z1: Tensor, z2: Tensor) -> Tensor:
    metric = CASES[name][0]()
    cuts = [0, 37, 100] if world_size == 2 else [0, 10, 37, 90, 100]  # unequal shares, different data on each
    share = slice(cuts[rank], cuts[rank + 1])
    for a, b in zip(z1[share].split(8), z2[share].split(8), strict=True):
        metric.update(*_arguments(name, a, b))
    value: Tensor = metric.compute()
    return value


def _values_on_rank(rank: int, world_size: int, z1: Tensor, z2: Tensor) -> dict[str, Tensor]:
    return {name: _value_on_rank(rank, world_size, name, z1, z2) for name in CASES}


def _assert_ranks_agree_with_one_process(world_size: int, folder: Path) -> None:
    z1, z2 = _pairs(100)
    for values in on_ranks(world_size, _values_on_rank, folder, z1, z2):
        for name, (_, function, arity) in CASES.items():
            torch.testing.assert_close(values[name], function(*(z1, z2)[:arity]), rtol=1e-5, atol=1e-5)


def test_two_ranks_with_unequal_shares_give_the_value_of_one_process(tmp_path: Path) -> None:
    _assert_ranks_agree_with_one_process(2, tmp_path)


@pytest.mark.slow
def test_four_ranks_with_unequal_shares_give_the_value_of_one_process(tmp_path: Path) -> None:
    _assert_ranks_agree_with_one_process(4, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_forward_returns_the_batch_value_and_keeps_the_running_state(name: str) -> None:
    make, function, arity = CASES[name]
    z1, z2 = _pairs(60)
    metric = make()
    for a, b in zip(z1.split(20), z2.split(20), strict=True):
        torch.testing.assert_close(metric(*_arguments(name, a, b)), function(*(a, b)[:arity]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(metric.compute(), function(*(z1, z2)[:arity]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_reset_forgets(name: str) -> None:
    make, function, arity = CASES[name]
    metric = make()
    metric.update(*_arguments(name, *_pairs(50)))
    metric.reset()
    z1, z2 = _pairs(30)
    metric.update(*_arguments(name, z1, z2))
    torch.testing.assert_close(metric.compute(), function(*(z1, z2)[:arity]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_computing_twice_changes_nothing_and_updates_go_on(name: str) -> None:
    make, function, arity = CASES[name]
    z1, z2 = _pairs(60)
    metric = make()
    metric.update(*_arguments(name, z1[:30], z2[:30]))
    metric.compute()
    metric.update(*_arguments(name, z1[30:], z2[30:]))
    torch.testing.assert_close(metric.compute(), function(*(z1, z2)[:arity]), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")  # torchmetrics' own
@pytest.mark.parametrize("name", CASES)
def test_nothing_seen_is_an_error_that_names_the_metric(name: str) -> None:
    metric = CASES[name][0]()
    with pytest.raises(ValueError, match=type(metric).__name__):
        metric.compute()


def test_running_sums_do_not_drift_in_float32() -> None:
    z1, z2 = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.7]])
    value = entrec.alignment(z1, z2)
    metric, plain = Alignment(), torch.tensor(0.0)
    for _ in range(8000):
        metric.update(z1, z2)
        plain += value
    assert abs(float(plain) / 8000 / float(value) - 1) > 1e-5  # what a plain sum would do
    assert float(metric.compute()) == pytest.approx(float(value), rel=2e-7)


@pytest.mark.parametrize(
    ("metric", "arguments", "message"),
    [
        (KDEEntropy(VMF), (torch.zeros(3, 2),), "z must hold directions"),
        (KDEEntropy(Gaussian(1.0)), (torch.tensor([[float("nan")]]),), "z must be finite"),
        (KDEEntropy(VMF), (torch.randn(3),), r"z must have shape \(k, d\), got \(3,\)"),
        (ERBoundMetric(VMF), (torch.randn(3, 2), torch.randn(4, 2)), "z1 and z2 must have the same shape"),
        (InfoNCEBound(VMF), (torch.randn(3, 2), torch.zeros(3, 2)), "z2 must hold directions"),
        (Reconstruction(VMF), (torch.randn(3, 2), torch.randn(3, 3)), "z_target and z_source"),
        (DiscreteEntropy(3), (torch.full((2, 4), 0.25),), r"probs must have shape \(k, 3\), got \(2, 4\)"),
        (DiscreteEntropy(3), (torch.ones(2, 3),), "probs must hold probabilities"),
        (Uniformity(), (torch.zeros(3, 2),), "z must hold directions"),
        (EffectiveRank(), (torch.full((3, 2), float("inf")),), "z must be finite"),
    ],
)
def test_a_bad_batch_is_refused_when_it_comes(metric: Metric, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric.update(*arguments)


@pytest.mark.parametrize("cap", [1, 0, -3])
def test_a_cap_below_two_is_refused(cap: int) -> None:
    with pytest.raises(ValueError, match="max_samples must be at least 2"):
        KDEEntropy(VMF, max_samples=cap)


def test_half_precision_projections_are_measured_in_float32() -> None:
    z = torch.randn(50, DIM, dtype=torch.bfloat16)
    metric = KDEEntropy(VMF)
    metric.update(z)
    assert metric.compute().dtype == torch.float32
    torch.testing.assert_close(metric.compute(), entrec.kde_entropy(z.float(), VMF, leave_one_out=True))
