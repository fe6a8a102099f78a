import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from entrec import (
    Gaussian,
    VonMisesFisher,
    alignment,
    checks,
    discrete_entropy,
    discrete_er_objective,
    discrete_reconstruction,
    effective_rank,
    er_bound,
    er_objective,
    infonce_bound,
    kde_entropy,
    kde_log_density,
    pairwise_logsumexp,
    raise_if_invalid,
    reconstruction,
    uniformity,
)
from entrec.losses import DiscreteERLoss, ERLoss

VMF = VonMisesFisher(5.0)

# Every public function that looks at values, without validation, as a function of one tensor of shape (4, 3).
UNVALIDATED: dict[str, Callable[[Tensor], object]] = {
    "log_prob": lambda z: VMF.log_prob(z, z, validate=False),
    "kde_log_density": lambda z: kde_log_density(z, VMF, validate=False),
    "kde_log_density reference": lambda z: kde_log_density(torch.ones(2, 3), VMF, z, validate=False),
    "kde_entropy": lambda z: kde_entropy(z, VMF, validate=False),
    "reconstruction": lambda z: reconstruction(z, torch.ones(4, 3), VMF, validate=False),
    "er_bound": lambda z: er_bound(torch.ones(4, 3), z, VMF, validate=False),
    "infonce_bound": lambda z: infonce_bound(z, torch.ones(4, 3), VMF, validate=False),
    "er_objective": lambda z: er_objective((z, torch.ones(4, 3)), VMF, validate=False),
    "er_objective targets": lambda z: er_objective([torch.ones(4, 3)] * 2, VMF, targets=[z], validate=False),
    "ERLoss": lambda z: ERLoss(VMF, validate=False)(torch.ones(4, 3), z),
    "ERLoss predictions": lambda z: ERLoss(VMF, validate=False)(*[torch.ones(4, 3)] * 2, predictions=(z, z)),
    "alignment": lambda z: alignment(z, torch.ones(4, 3), validate=False),
    "uniformity": lambda z: uniformity(z, validate=False),
    "pairwise_logsumexp": lambda z: pairwise_logsumexp(z, z, "dot", validate=False),
    "discrete_er_objective": lambda z: discrete_er_objective((z, z), validate=False),
    "DiscreteERLoss": lambda z: DiscreteERLoss(validate=False)(z, z),
    "discrete_entropy": lambda z: discrete_entropy(z, validate=False),
    "discrete_reconstruction": lambda z: discrete_reconstruction(z, torch.full((4, 3), 1 / 3).log(), validate=False),
    "discrete targets": lambda z: DiscreteERLoss(validate=False)(torch.ones(4, 3), torch.ones(4, 3), targets=[z]),
}
ON_THE_SPHERE = list(UNVALIDATED)[:13]


def with_entry(value: float) -> Tensor:
    z = torch.full((4, 3), 1 / 3)
    z[1, 2] = value
    return z


def raised() -> str:
    with pytest.raises(ValueError, match="compiled, captured or unvalidated") as caught:
        raise_if_invalid()
    return str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", UNVALIDATED)
def test_an_unvalidated_call_reports_once_and_only_when_asked(name: str, bad: float) -> None:
    UNVALIDATED[name](with_entry(bad))
    assert "NaN or infinity" in raised()
    raise_if_invalid()  # it has been read, and so cleared


@pytest.mark.parametrize("name", UNVALIDATED)
def test_a_valid_call_leaves_nothing_to_report(name: str) -> None:
    UNVALIDATED[name](torch.full((4, 3), 1 / 3))
    raise_if_invalid()


@pytest.mark.parametrize("name", ON_THE_SPHERE)
def test_zero_vectors_on_the_sphere_are_reported(name: str) -> None:
    z = torch.ones(4, 3)
    z[2] = 0
    UNVALIDATED[name](z)
    assert "zero vector" in raised()
    raise_if_invalid()


def test_zero_vectors_are_points_like_any_other_in_euclidean_space() -> None:
    kde_entropy(torch.zeros(4, 3), Gaussian(1.0), validate=False)
    raise_if_invalid()


@pytest.mark.parametrize("name", ["discrete_entropy", "discrete_reconstruction", "discrete targets"])
def test_what_is_no_distribution_is_reported(name: str) -> None:
    for z in (torch.full((4, 3), 0.3), torch.tensor([[1.5, -0.5, 0.0]]).expand(4, 3)):
        UNVALIDATED[name](z)
        assert "negative or did not sum to one" in raised()
    raise_if_invalid()


def test_effective_rank_reports_what_has_none() -> None:
    effective_rank(torch.zeros(4, 3), validate=False)
    assert "zero vector" in raised()


def test_faults_of_several_calls_are_reported_together() -> None:
    kde_entropy(with_entry(math.nan), Gaussian(1.0), validate=False)
    kde_entropy(torch.zeros(4, 3), VMF, validate=False)
    kde_entropy(torch.ones(4, 3), VMF, validate=False)  # a valid call in between hides nothing
    discrete_entropy(torch.ones(4, 3), validate=False)
    message = raised()
    for fault in ("NaN or infinity", "zero vector", "did not sum to one"):
        assert fault in message


def test_a_call_that_raises_leaves_nothing_to_report() -> None:
    with pytest.raises(ValueError, match="z must be finite"):
        kde_entropy(with_entry(math.nan), VMF)
    raise_if_invalid()


def test_a_scale_that_is_not_positive_is_deferred_too() -> None:
    z = torch.randn(4, 3)
    pairwise_logsumexp(z, z, "dot", torch.tensor(-1.0), validate=False)
    assert "not positive" in raised()


def test_a_parameter_that_training_has_made_negative_is_refused_at_the_next_call() -> None:
    kappa = torch.tensor(1.0, requires_grad=True)
    density = VonMisesFisher(kappa)
    with torch.no_grad():
        kappa.sub_(2.0)
    with pytest.raises(ValueError, match=r"kappa.*positive.*-1"):
        kde_entropy(torch.randn(4, 3), density)


@pytest.mark.parametrize("name", UNVALIDATED)
def test_shapes_and_dtypes_are_checked_even_without_validation(name: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        UNVALIDATED[name](torch.ones(3))
    with pytest.raises(TypeError, match="int64"):
        UNVALIDATED[name](torch.ones(4, 3, dtype=torch.int64))


@pytest.mark.parametrize("d", [2, 1000, 65536])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_softmax_rounded_to_its_dtype_still_passes_as_probabilities(dtype: torch.dtype, d: int) -> None:
    logits = 3 * torch.randn(8, d)
    assert torch.isfinite(discrete_entropy(torch.softmax(logits, dim=1).to(dtype)))
    p = torch.softmax(logits, dim=1)
    assert torch.isfinite(discrete_reconstruction(p, torch.log_softmax(logits, dim=1).to(dtype)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_that_is_off_by_a_thousandth_does_not_pass_as_probabilities(dtype: torch.dtype) -> None:
    p = torch.full((4, 4), 0.25, dtype=dtype)
    with pytest.raises(ValueError, match=r"probs .* summing to 1.*1\.001"):
        discrete_entropy(1.001 * p)
    with pytest.raises(ValueError, match=r"log_q.* summing to 1.*1\.001"):
        discrete_reconstruction(p, (1.001 * p).log())


@pytest.mark.parametrize("number", [3, np.float32(3), np.float64(3), np.int64(3)])
def test_any_real_number_is_a_parameter(number: Any) -> None:
    value = checks.positive("kappa", number)
    assert isinstance(value, float)
    assert value == 3.0
    assert VonMisesFisher(number) == VonMisesFisher(3.0)


def test_dtypes_are_widened_and_never_narrowed() -> None:
    half, brain, single, double = (
        torch.ones(1, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    )
    assert [checks.at_least_float32(x).dtype for x in (half, brain, single, double)] == [torch.float32] * 3 + [torch.float64]
    assert {x.dtype for x in checks.same_dtype(half, brain)} == {torch.float32}
    assert {x.dtype for x in checks.same_dtype(half, double)} == {torch.float64}


def test_first_use_of_the_flag_may_be_an_unvalidated_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_flags", type(checks._flags)())
    kde_entropy(with_entry(math.nan), VMF, validate=False)
    assert "NaN or infinity" in raised()
