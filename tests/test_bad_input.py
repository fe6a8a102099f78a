import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import entrec
from entrec import (
    Gaussian,
    GeneralizedNormal,
    Laplace,
    VonMisesFisher,
    alignment,
    discrete_entropy,
    discrete_er_objective,
    discrete_reconstruction,
    effective_rank,
    er_bound,
    er_objective,
    infonce_bound,
    kde_entropy,
    kde_log_density,
    log_sphere_area,
    pairwise_logsumexp,
    reconstruction,
    uniformity,
)
from entrec.losses import DiscreteERLoss, ERLoss

Call = Callable[[Any], object]

VMF, GAUSSIAN = VonMisesFisher(5.0), Gaussian(1.0)
Z = torch.tensor([[1.0, 0.0, 2.0], [0.5, 1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
P = torch.full((4, 3), 1 / 3)

# (argument's name, call as a function of that argument), each valid for Z or P of shape (4, 3)
SEVERAL: list[Call] = [
    lambda x: kde_entropy(x, VMF),
    lambda x: kde_entropy(x, VMF, "plugin", leave_one_out=True),
    lambda x: kde_entropy(x, GAUSSIAN),
]
POINTS: list[tuple[str, Call]] = [
    ("z", lambda x: VMF.log_prob(x, Z)),
    ("given", lambda x: VMF.log_prob(Z, x)),
    ("z", lambda x: kde_log_density(x, VMF)),
    ("reference", lambda x: kde_log_density(Z, VMF, x)),
    ("z", SEVERAL[0]),
    ("z", SEVERAL[1]),
    ("z_target", lambda x: reconstruction(x, Z, VMF)),
    ("z_source", lambda x: reconstruction(Z, x, VMF)),
    ("z1", lambda x: er_bound(x, Z, VMF)),
    ("z2", lambda x: er_bound(Z, x, VMF)),
    ("z1", lambda x: infonce_bound(x, Z, VMF)),
    ("z2", lambda x: infonce_bound(Z, x, VMF)),
    ("views", lambda x: er_objective((x, Z), VMF)),
    ("views", lambda x: ERLoss(VMF)(Z, Z, x)),
    ("targets", lambda x: ERLoss(VMF)(Z, Z, targets=(x, Z))),
    ("predictions", lambda x: ERLoss(VMF)(Z, Z, targets=(Z,), predictions=(Z, x))),
    ("z1", lambda x: alignment(x, Z)),
    ("z2", lambda x: alignment(Z, x)),
    ("z", uniformity),
]
SCORES: list[tuple[str, Call]] = [
    ("z", SEVERAL[2]),
    ("z", effective_rank),
    ("views", lambda x: discrete_er_objective((Z, x))),
    ("views", lambda x: DiscreteERLoss()(x, Z)),
    ("predictions", lambda x: DiscreteERLoss()(Z, Z, predictions=(x, Z))),
]
PROBABILITIES: list[tuple[str, Call]] = [
    ("probs", discrete_entropy),
    ("p_target", lambda x: discrete_reconstruction(x, P.log())),
    ("targets", lambda x: discrete_er_objective((Z, Z), targets=(P, x))),
    ("targets", lambda x: DiscreteERLoss()(Z, Z, targets=(x,))),
]
LOG_PROBABILITIES: list[tuple[str, Call]] = [("log_q", lambda x: discrete_reconstruction(P, x))]
TENSORS = POINTS + SCORES + PROBABILITIES + LOG_PROBABILITIES
ALONE = {"z", "probs"}  # nothing beside these that they would have to match
PAIRED = [(name, call) for name, call in TENSORS if name not in ALONE] + POINTS[:1]

POSITIVE: list[tuple[str, Call]] = [
    ("kappa", VonMisesFisher),
    ("sigma", Gaussian),
    ("scale", Laplace),
    ("beta", lambda x: GeneralizedNormal(x, 1.0)),
    ("scale", lambda x: GeneralizedNormal(1.0, x)),
    ("h", VMF.with_bandwidth),
    ("h", GAUSSIAN.with_bandwidth),
    ("h", Laplace(1.0).with_bandwidth),
    ("h", GeneralizedNormal(1.0, 1.0).with_bandwidth),
    ("temperature", lambda x: discrete_er_objective((Z, Z), x)),
    ("temperature", DiscreteERLoss),
    ("alpha", lambda x: alignment(Z, Z, x)),
    ("t", lambda x: uniformity(Z, x)),
    ("scale", lambda x: pairwise_logsumexp(Z, Z, "dot", x)),
    ("p", lambda x: pairwise_logsumexp(Z, Z, ("lp", x))),
]
WEIGHTS: list[tuple[str, Call]] = [
    ("weight", lambda x: ERLoss(VMF, weight=x)),
    ("weight", lambda x: er_objective((Z, Z), VMF, weight=x)),
    ("weight", lambda x: DiscreteERLoss(weight=x)),
    ("weight", lambda x: discrete_er_objective((Z, Z), weight=x)),
]
CHUNKS: list[tuple[str, Call]] = [
    ("chunks", lambda x: discrete_entropy(P, x)),
    ("chunks", lambda x: discrete_er_objective((Z, Z), chunks=x)),
    ("chunks", lambda x: DiscreteERLoss(chunks=x)(Z, Z)),
]
DIMENSIONS: list[tuple[str, Call]] = [
    ("dim", VMF.log_normalizer),
    ("dim", VMF.entropy),
    ("dim", GAUSSIAN.log_normalizer),
    ("dim", GAUSSIAN.entropy),
    ("dim", Laplace(1.0).log_normalizer),
    ("dim", Laplace(1.0).entropy),
    ("dim", GeneralizedNormal(1.0, 1.0).log_normalizer),
    ("dim", GeneralizedNormal(1.0, 1.0).entropy),
    ("dim", log_sphere_area),
]
ESTIMATORS: list[tuple[str, Call]] = [
    ("estimator", lambda x: kde_entropy(Z, VMF, x)),
    ("estimator", lambda x: er_bound(Z, Z, VMF, estimator=x)),
    ("estimator", lambda x: er_objective((Z, Z), VMF, estimator=x)),
    ("estimator", lambda x: ERLoss(VMF, estimator=x)),
]
DENSITIES: list[tuple[str, Call]] = [
    ("kernel", lambda x: kde_log_density(Z, x)),
    ("kernel", lambda x: kde_entropy(Z, x)),
    ("density", lambda x: reconstruction(Z, Z, x)),
    ("density", lambda x: er_bound(Z, Z, x)),
    ("density", lambda x: infonce_bound(Z, Z, x)),
    ("density", lambda x: er_objective((Z, Z), x)),
    ("density", ERLoss),
]
KERNELS: list[tuple[str, Call]] = [  # None means the density itself
    ("kernel", lambda x: er_bound(Z, Z, VMF, x)),
    ("kernel", lambda x: er_objective((Z, Z), VMF, x)),
    ("kernel", lambda x: ERLoss(VMF, x)),
]
LEAVE_ONE_OUT: list[tuple[str, Call]] = [
    ("z", lambda x: kde_log_density(x, VMF, leave_one_out=True)),
    ("z", lambda x: kde_entropy(x, VMF, leave_one_out=True)),
    ("z1", lambda x: er_bound(x, x, VMF, leave_one_out=True)),
    ("views", lambda x: er_objective((x, x), VMF, leave_one_out=True)),
    ("views", lambda x: ERLoss(VMF, leave_one_out=True)(x, x)),
    ("z", uniformity),
    ("exclude_diagonal", lambda x: pairwise_logsumexp(x, x, "dot", exclude_diagonal=True)),
]
NUMBERS_BUT_NOT_POSITIVE = [0, 0.0, -1.5, math.nan, math.inf, -math.inf]
NO_NUMBERS: list[Any] = [True, "large", None, 1j, [1.0]]


def table(calls: list[tuple[str, Call]]) -> pytest.MarkDecorator:
    rows = [pytest.param(name, call, id=f"{i}-{name}") for i, (name, call) in enumerate(calls)]
    return pytest.mark.parametrize(("name", "call"), rows)


def refuses(call: Call, value: Any, error: type[Exception], *words: str) -> None:
    """The call fails with that error, in a message that holds every one of the words."""
    with pytest.raises(error) as caught:
        call(value)
    for word in words:
        assert word in str(caught.value), f"{word!r} not in {str(caught.value)!r}"


def spoilt(tensor: Tensor, value: float) -> Tensor:
    bad = tensor.clone()
    bad[1, 2] = value
    return bad


@table(TENSORS)
def test_every_call_of_the_table_takes_good_input(name: str, call: Call) -> None:
    call(P.log() if name == "log_q" else P)  # a row of probabilities is a point, a direction and a score as well


@pytest.mark.parametrize("shape", [(), (3,), (2, 4, 3)])
@table(TENSORS)
def test_wrong_rank(name: str, call: Call, shape: tuple[int, ...]) -> None:
    if len(shape) == 3 and call in SEVERAL:
        pytest.skip("takes several batches at once")
    refuses(call, torch.ones(shape), ValueError, name, "(k, d)", str(shape))


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
@table(TENSORS)
def test_empty_batch(name: str, call: Call, shape: tuple[int, ...]) -> None:
    refuses(call, torch.ones(shape), ValueError, name, "at least", str(shape))


@table(PAIRED[:-1])
def test_mismatched_shapes(name: str, call: Call) -> None:
    shape = (4, 4) if name == "reference" else (5, 3)
    refuses(call, torch.full(shape, 1 / shape[1]), ValueError, name, "same", str(shape), "(4, 3)")


@table(PAIRED[:-1])
def test_mismatched_dimensions(name: str, call: Call) -> None:
    refuses(call, torch.full((4, 2), 0.5), ValueError, name, "same", "(4, 2)", "(4, 3)")


@table([row for row in PAIRED if row[0] not in {"targets", "predictions"}])
def test_mismatched_devices(name: str, call: Call) -> None:
    refuses(call, P.to("meta"), ValueError, name, "device", "cpu", "meta")


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
@table(TENSORS)
def test_tensors_that_are_not_floating_point(name: str, call: Call, dtype: torch.dtype) -> None:
    refuses(call, torch.ones(4, 3).to(dtype), TypeError, name, "floating-point", str(dtype))


@pytest.mark.parametrize("thing", [None, 1.0, "z", [[1.0]], np.ones((4, 3))], ids=str)
@table([row for row in TENSORS if row[0] != "reference"])
def test_things_that_are_no_tensors(name: str, call: Call, thing: Any) -> None:
    refuses(call, thing, TypeError, name, "torch.Tensor", type(thing).__name__)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@table(POINTS + SCORES + PROBABILITIES)
def test_values_that_are_not_finite(name: str, call: Call, value: float) -> None:
    refuses(call, spoilt(P, value), ValueError, name, "must be finite", "1 of its", "NaN or infinite")


@pytest.mark.parametrize("value", [math.nan, math.inf])
@table(LOG_PROBABILITIES)
def test_log_probabilities_that_are_nan_or_infinite(name: str, call: Call, value: float) -> None:
    refuses(call, spoilt(P.log(), value), ValueError, name, "probabilities")


@table(POINTS)
def test_zero_vectors_where_a_direction_is_needed(name: str, call: Call) -> None:
    bad = P.clone()
    bad[1] = 0
    refuses(call, bad, ValueError, name, "direction", "1 of its", "zero vector")


def test_effective_rank_of_nothing() -> None:
    refuses(effective_rank, torch.zeros(4, 3), ValueError, "z", "zero vector")


@table(PROBABILITIES)
def test_probabilities_that_do_not_sum_to_one(name: str, call: Call) -> None:
    refuses(call, 0.9 * P, ValueError, name, "probabilities", "summing to 1", "0.9")


@table(PROBABILITIES)
def test_negative_probabilities(name: str, call: Call) -> None:
    refuses(call, torch.tensor([[1.5, -0.5, 0.0]]).expand(4, 3), ValueError, name, "at least 0", "-0.5")


@table(LOG_PROBABILITIES)
def test_logits_in_the_place_of_log_probabilities(name: str, call: Call) -> None:
    refuses(call, torch.zeros(4, 3), ValueError, name, "summing to 1", "3")


@pytest.mark.parametrize("value", NUMBERS_BUT_NOT_POSITIVE)
@table(POSITIVE)
def test_parameters_that_are_not_positive(name: str, call: Call, value: float) -> None:
    refuses(call, value, ValueError, name, "positive", str(value))


@pytest.mark.parametrize("value", [0.0, -1.5, math.nan, math.inf])
@table(POSITIVE)
def test_parameter_tensors_that_are_not_positive(name: str, call: Call, value: float) -> None:
    refuses(call, torch.tensor(value), ValueError, name, "positive", str(value))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
@table(POSITIVE)
def test_parameters_that_are_no_numbers(name: str, call: Call, value: Any) -> None:
    refuses(call, value, TypeError, name, "number", type(value).__name__)


@table(POSITIVE)
def test_parameter_tensors_that_are_not_floating_point(name: str, call: Call) -> None:
    refuses(call, torch.tensor(3), TypeError, name, "floating-point", "int64")


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@table(WEIGHTS)
def test_weights_that_are_negative_or_not_finite(name: str, call: Call, value: float) -> None:
    refuses(call, value, ValueError, name, "at least 0", str(value))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
@table(WEIGHTS)
def test_weights_that_are_no_numbers(name: str, call: Call, value: Any) -> None:
    refuses(call, value, TypeError, name, "number", type(value).__name__)


@pytest.mark.parametrize("value", [0, -2])
@table(CHUNKS)
def test_chunks_below_one(name: str, call: Call, value: int) -> None:
    refuses(call, value, ValueError, name, "at least 1", str(value))


@pytest.mark.parametrize("value", [3, 5, 8])
@table(CHUNKS)
def test_chunks_that_do_not_divide_the_batch(name: str, call: Call, value: int) -> None:
    refuses(call, value, ValueError, name, "equal parts", str(value), "4 rows")


@pytest.mark.parametrize("value", [1.0, True, "2", None])
@table(CHUNKS + DIMENSIONS)
def test_counts_that_are_no_whole_numbers(name: str, call: Call, value: Any) -> None:
    refuses(call, value, TypeError, name, "whole number", type(value).__name__)


@pytest.mark.parametrize("value", [0, -3])
@table(DIMENSIONS)
def test_dimensions_below_the_least(name: str, call: Call, value: int) -> None:
    refuses(call, value, ValueError, name, "at least", str(value))


def test_the_sphere_of_a_line_has_no_von_mises_fisher() -> None:
    refuses(VMF.log_normalizer, 1, ValueError, "dim", "at least 2", "1")


@pytest.mark.parametrize("value", ["kde", "Joe", "", None, 3])
@table(ESTIMATORS)
def test_unknown_estimators(name: str, call: Call, value: Any) -> None:
    refuses(call, value, ValueError, name, "'joe', 'plugin'", repr(value))


@pytest.mark.parametrize("value", ["manhattan", "lp", None, 2, ("lp",), ("lq", 2.0), ("lp", 2.0, 1.0)], ids=str)
def test_unknown_similarities(value: Any) -> None:
    refuses(
        lambda x: pairwise_logsumexp(Z, Z, x),
        value,
        ValueError,
        "similarity",
        "'dot', 'cosine', 'sqeuclidean', 'l1'",
        repr(value),
    )


@pytest.mark.parametrize(
    "value", [1.0, "vmf", object(), Gaussian, VonMisesFisher, torch.ones(())], ids=lambda x: type(x).__name__
)
@table(DENSITIES + KERNELS)
def test_what_is_no_density(name: str, call: Call, value: Any) -> None:
    refuses(call, value, TypeError, name, "density", repr(value))


@table(DENSITIES)
def test_no_density_at_all(name: str, call: Call) -> None:
    refuses(call, None, TypeError, name, "density", "None")


@table(LEAVE_ONE_OUT)
def test_one_point_alone_has_no_others(name: str, call: Call) -> None:
    refuses(call, torch.ones(1, 3), ValueError, name, "at least 2 rows", "1")


def test_leave_one_out_makes_no_sense_under_other_points() -> None:
    refuses(
        lambda x: kde_log_density(Z, VMF, x, leave_one_out=True), torch.ones(4, 3), ValueError, "leave_one_out", "reference"
    )


@pytest.mark.parametrize("shapes", [((4, 3), (4, 2)), ((2, 4, 3), (3, 4, 3)), ((2, 4, 3), (4, 3)), ((3,), (4, 3))], ids=str)
def test_pairwise_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (torch.ones(shape) for shape in shapes)
    refuses(lambda x: pairwise_logsumexp(x, b, "dot"), a, ValueError, "a and b", str(shapes[0]), str(shapes[1]))


@pytest.mark.parametrize("shapes", [((0, 3), (4, 3)), ((4, 3), (0, 3)), ((4, 0), (4, 0))], ids=str)
def test_pairwise_of_nothing(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (torch.ones(shape) for shape in shapes)
    refuses(lambda x: pairwise_logsumexp(x, b, "dot"), a, ValueError, "a and b", "empty", str(shapes[0]), str(shapes[1]))


def test_pairwise_of_what_is_not_finite_or_not_floating_point() -> None:
    for value in (math.nan, math.inf):
        refuses(lambda x: pairwise_logsumexp(x, Z, "dot"), spoilt(Z, value), ValueError, "a must be finite", "1 of its 12")
        refuses(lambda x: pairwise_logsumexp(Z, x, "dot"), spoilt(Z, value), ValueError, "b must be finite", "1 of its 12")
    refuses(lambda x: pairwise_logsumexp(x, Z, "dot"), torch.ones(4, 3).int(), TypeError, "a ", "int32")
    refuses(lambda x: pairwise_logsumexp(Z, x, "dot"), [1.0], TypeError, "b ", "list")
    refuses(lambda x: pairwise_logsumexp(Z, x, "dot"), Z.to("meta"), ValueError, "a and b", "device", "cpu", "meta")


def test_pairwise_scale_of_several_numbers() -> None:
    refuses(lambda x: pairwise_logsumexp(Z, Z, "dot", x), torch.ones(4), ValueError, "scale", "one element", "(4,)")


@pytest.mark.parametrize(
    ("name", "density"),
    [
        ("kappa", lambda x: VonMisesFisher(x)),
        ("sigma", lambda x: Gaussian(x)),
        ("scale", lambda x: Laplace(x)),
        ("beta", lambda x: GeneralizedNormal(x, 1.0)),
        ("scale", lambda x: GeneralizedNormal(1.0, x)),
    ],
)
def test_an_entropy_has_one_kernel_and_not_several(name: str, density: Callable[[Tensor], entrec.Density]) -> None:
    refuses(lambda x: kde_entropy(Z, density(x)), torch.ones(2), ValueError, name, "one element", "(2,)")


@pytest.mark.parametrize("loss", [lambda z: er_objective(z, VMF), discrete_er_objective])
def test_fewer_than_two_views(loss: Call) -> None:
    refuses(loss, [Z], ValueError, "views", "at least 2", "1")
    refuses(loss, [], ValueError, "views", "at least 2", "0")


@pytest.mark.parametrize("loss", [ERLoss(VMF), DiscreteERLoss()])
def test_too_many_targets_or_none_or_the_wrong_number_of_predictions(loss: Callable[..., object]) -> None:
    refuses(lambda x: loss(Z, Z, targets=x), (P, P, P), ValueError, "targets", "1 to 2", "3")
    refuses(lambda x: loss(Z, Z, targets=x), (), ValueError, "targets", "1 to 2", "0")
    refuses(lambda x: loss(Z, Z, predictions=x), (Z,), ValueError, "predictions", "2", "1")
    refuses(lambda x: loss(Z, Z, Z, predictions=x), (Z, Z), ValueError, "predictions", "3", "2")


@pytest.mark.parametrize("loss", [ERLoss(VMF), DiscreteERLoss()])
def test_one_tensor_where_one_per_view_is_meant(loss: Callable[..., object]) -> None:
    refuses(lambda x: loss(Z, Z, targets=x), P, ValueError, "targets", "4")
    refuses(lambda x: loss(Z, Z, predictions=x), P, ValueError, "predictions", "4")


@pytest.mark.parametrize("loss", [ERLoss(VMF), DiscreteERLoss()])
def test_numbers_where_views_are_meant(loss: Callable[..., object]) -> None:
    refuses(lambda x: loss(Z, Z, targets=x), 3, TypeError, "targets", "int")
    refuses(lambda x: loss(Z, Z, predictions=x), 3, TypeError, "predictions", "int")
