import math
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from entrec import (
    Density,
    Gaussian,
    GeneralizedNormal,
    Laplace,
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

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal
Function = Callable[[Tensor, Tensor], Tensor]

VMF, GAUSSIAN, LAPLACE = VonMisesFisher(5.0), Gaussian(0.7), Laplace(0.4)
EVERY_FAMILY: dict[str, Family] = {
    "vmf": VMF,
    "gaussian": GAUSSIAN,
    "laplace": LAPLACE,
    "generalized_normal": GeneralizedNormal(1.5, 0.8),
}
ERLOSS = {name: ERLoss(density) for name, density in EVERY_FAMILY.items()}
ERLOSS_BY_JOE = ERLoss(VMF, LAPLACE, "joe", 0.7, leave_one_out=True)
DISCRETE_ERLOSS = DiscreteERLoss(chunks=2)
CODES = torch.softmax(torch.arange(24.0).reshape(8, 3).sin(), dim=1)
HAS_COMPILER = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
BACKENDS = ["aot_eager", *([pytest.param("inductor", marks=pytest.mark.slow)] if HAS_COMPILER else [])]

FUNCTIONS: dict[str, Function] = {
    "kde_log_density": lambda a, b: kde_log_density(a, VMF, b).sum(),
    "kde_log_density_leave_one_out": lambda a, b: kde_log_density(a, VMF, leave_one_out=True).sum() + b.sum(),
    "kde_entropy_plugin": lambda a, b: kde_entropy(a, VMF, "plugin") + kde_entropy(b, GAUSSIAN, leave_one_out=True),
    "discrete_entropy": lambda a, b: discrete_entropy(torch.softmax(a, dim=1), 2) + discrete_entropy(torch.softmax(b, dim=1)),
    "discrete_reconstruction": lambda a, b: discrete_reconstruction(torch.softmax(a, dim=1), torch.log_softmax(b, dim=1)),
    "er_bound": lambda a, b: torch.stack(er_bound(a, b, VMF, GAUSSIAN, "plugin", leave_one_out=True)).sum(),
    "infonce_bound": lambda a, b: infonce_bound(a, b, VMF),
    "er_objective": lambda a, b: torch.stack(er_objective((a, b), VMF, GAUSSIAN, "joe", 0.7)).sum(),
    "discrete_er_objective": lambda a, b: torch.stack(discrete_er_objective((a, b), 0.5, 0.7, 2)).sum(),
    "alignment": lambda a, b: alignment(a, b, alpha=3.0),
    "uniformity": lambda a, b: uniformity(a) + uniformity(b, t=0.5),
    "effective_rank": lambda a, b: effective_rank(a) * effective_rank(b),
    "pairwise_logsumexp": lambda a, b: pairwise_logsumexp(a, b, "l1", 0.5, exclude_diagonal=True).sum(),
    "pairwise_logsumexp_batch": lambda a, b: pairwise_logsumexp(torch.stack([a, b]), torch.stack([b, a]), ("lp", 3.0)).sum(),
    "ERLoss_joe": lambda a, b: ERLOSS_BY_JOE(a, b, a + b),
    "ERLoss_teacher": lambda a, b: ERLOSS["vmf"](a, b, targets=(b,), predictions=(b, a)),
    "DiscreteERLoss": lambda a, b: DISCRETE_ERLOSS(a, b),
    "DiscreteERLoss_teacher": lambda a, b: DISCRETE_ERLOSS(a, b, a * b, targets=(CODES, CODES), predictions=(a, b, a + b)),
}


def log_prob_of(density: Family) -> Function:
    return lambda a, b: density.log_prob(a, b).sum()


def loss_of(module: ERLoss) -> Function:
    return lambda a, b: module(a, b)


for _name, _density in EVERY_FAMILY.items():
    FUNCTIONS[f"log_prob_{_name}"] = log_prob_of(_density)
    FUNCTIONS[f"ERLoss_{_name}"] = loss_of(ERLOSS[_name])
FUNCTIONS["reconstruction"] = lambda a, b: reconstruction(a, b, VMF)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch.compiler.reset()


def points(k: int = 8) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, k, 3, dtype=torch.float64)
    return a.requires_grad_(), b.requires_grad_()


def gradients(value: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, inputs, materialize_grads=True)


def same_numbers(compiled: Function, function: Function, a: Tensor, b: Tensor) -> None:
    value, exact = compiled(a, b), function(a, b)
    torch.testing.assert_close(value, exact, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradients(value, a, b), gradients(exact, a, b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_without_graph_breaks_gives_the_same_values_and_gradients(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*[Dd]ynamo")  # of what the compiler cannot see through
        same_numbers(compiled, function, *points())
    raise_if_invalid()


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_loss_module_gives_the_same_values_and_gradients(backend: str) -> None:
    module = ERLoss(VMF, weight=0.7)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    same_numbers(compiled, module, *points(32))
    a, b = (x.detach().float().requires_grad_() for x in points(32))
    value, exact = compiled(a, b), module(a, b)
    torch.testing.assert_close(value, exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients(value, a, b), gradients(exact, a, b), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["ERLoss_vmf", "er_bound", "DiscreteERLoss"])
def test_a_smaller_last_batch_gives_the_same_numbers_too(name: str) -> None:
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, backend="aot_eager")
    for k in (8, 6):
        same_numbers(compiled, FUNCTIONS[name], *points(k))


def test_another_dimension_gives_the_same_numbers_by_a_graph_of_the_same_size() -> None:
    sizes = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        sizes.append(len(graph.graph.nodes))
        return graph.forward

    module = ERLOSS["vmf"]
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for dim in (64, 80):
        a, b = torch.randn(2, 8, dim, dtype=torch.float64)
        torch.testing.assert_close(compiled(a, b), module(a, b))
    assert len(sizes) == 2
    assert sizes[1] <= 2 * sizes[0]  # the series of the constant, in a symbolic dimension, would be a hundred times that


@pytest.mark.parametrize("family", [VonMisesFisher, Gaussian])
def test_another_value_of_a_fixed_parameter_gives_the_same_numbers_too(family: Callable[[float], Density]) -> None:
    def loss(a: Tensor, b: Tensor, density: Density) -> Tensor:
        return er_objective((a, b), density).loss

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    a, b = torch.randn(2, 8, 64, dtype=torch.float64)
    for value in (5.0, 6.0):
        torch.testing.assert_close(compiled(a, b, family(value)), loss(a, b, family(value)))


@pytest.mark.parametrize("family", [VonMisesFisher, Gaussian, Laplace])
def test_a_parameter_that_is_learnt_is_not_frozen_by_compiling(family: Callable[[Tensor], Density]) -> None:
    parameter = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    module = ERLoss(family(parameter))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    a, b = torch.randn(2, 8, 64, dtype=torch.float64)
    for _ in range(2):
        value, exact = compiled(a, b), module(a, b)
        torch.testing.assert_close(value, exact)
        torch.testing.assert_close(gradients(value, parameter), gradients(exact, parameter))
        with torch.no_grad():
            parameter.mul_(2)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [3, 64])
def test_constants_and_their_gradients_in_the_parameter_compile(dim: int) -> None:
    def constants(a: Tensor, b: Tensor) -> Tensor:
        families = (VonMisesFisher(a), Gaussian(a), Laplace(a), GeneralizedNormal(a, b))
        return torch.stack([torch.as_tensor(q.log_normalizer(dim)) for q in families]).sum()

    compiled = torch.compile(constants, fullgraph=True, backend="aot_eager")
    a, b = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (2.0, 0.7))
    same_numbers(compiled, constants, a, b)


@pytest.mark.parametrize("family", [VonMisesFisher, Gaussian, Laplace])
def test_a_density_may_be_made_inside_the_graph(family: Callable[[Tensor], Density]) -> None:
    def loss(z: Tensor, log_parameter: Tensor) -> Tensor:
        return er_objective((z, z.roll(1, 0)), family(log_parameter.exp())).loss

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    z = torch.randn(8, 64, dtype=torch.float64, requires_grad=True)
    same_numbers(compiled, loss, z, torch.tensor(1.5, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize(("value", "fault"), [(math.nan, "NaN or infinity"), (0.0, "zero vector")])
def test_a_compiled_call_raises_nothing_and_reports_later(value: float, fault: str) -> None:
    compiled = torch.compile(ERLoss(VMF), fullgraph=True, backend="aot_eager")
    good, bad = torch.ones(4, 3), torch.ones(4, 3)
    bad[1] = value
    compiled(good, good)
    raise_if_invalid()
    compiled(good, bad)
    compiled(good, good)
    with pytest.raises(ValueError, match=fault):
        raise_if_invalid()
    raise_if_invalid()


def test_a_compiled_call_reports_what_is_no_distribution() -> None:
    compiled = torch.compile(discrete_entropy, fullgraph=True, backend="aot_eager")
    compiled(torch.full((4, 3), 0.3))
    with pytest.raises(ValueError, match="sum to one"):
        raise_if_invalid()


def test_the_very_first_call_of_all_may_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_flags", type(checks._flags)())
    compiled = torch.compile(ERLoss(VMF), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        compiled(torch.ones(4, 3), torch.full((4, 3), math.nan))
        with pytest.raises(ValueError, match="NaN"):
            raise_if_invalid()
        raise_if_invalid()


def test_a_parameter_that_is_not_positive_is_reported_from_inside_the_graph() -> None:
    def log_density(z: Tensor, sigma: Tensor) -> Tensor:
        return Gaussian(sigma).log_prob(z, 2 * z)

    compiled = torch.compile(log_density, fullgraph=True, backend="aot_eager")
    compiled(torch.randn(4, 3), torch.tensor(2.0))
    raise_if_invalid()
    compiled(torch.randn(4, 3), torch.tensor(-2.0))
    with pytest.raises(ValueError, match="not positive"):
        raise_if_invalid()
