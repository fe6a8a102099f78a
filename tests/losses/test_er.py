import math

import pytest
import torch
from torch import Tensor

from entrec import (
    Gaussian,
    GeneralizedNormal,
    Laplace,
    VonMisesFisher,
    er_bound,
    er_objective,
    kde_entropy,
    reconstruction,
)
from entrec.losses import ERLoss

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal

EVERY_FAMILY: list[Family] = [VonMisesFisher(3.0), Gaussian(0.7), Laplace(0.4), GeneralizedNormal(1.5, 0.8)]
every_family = pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)


def views(v: int, k: int = 6, d: int = 3) -> list[Tensor]:
    return [torch.randn(k, d, dtype=torch.float64) for _ in range(v)]


@pytest.mark.parametrize("v", [2, 3, 4])
def test_loss_of_v_views_is_the_mean_over_ordered_pairs_computed_by_hand(v: int) -> None:
    z = views(v)
    density, kernel = VonMisesFisher(5.0), VonMisesFisher(8.0)
    entropy = sum(kde_entropy(x, kernel, "joe", leave_one_out=True).item() for x in z) / v
    pairs = [reconstruction(z[t], z[s], density).item() for s in range(v) for t in range(v) if s != t]
    loss = ERLoss(density, kernel, estimator="joe", weight=0.7, leave_one_out=True)(*z)
    assert loss.item() == pytest.approx(-entropy - 0.7 * sum(pairs) / len(pairs), abs=1e-10)


def test_two_views_are_algorithm_one_of_the_paper() -> None:
    z1, z2 = views(2)
    q, weight = VonMisesFisher(5.0), 0.7
    h1, h2 = (kde_entropy(z, q, "plugin").item() for z in (z1, z2))
    rec1, rec2 = reconstruction(z1, z2, q).item(), reconstruction(z2, z1, q).item()
    assert ERLoss(q, weight=weight)(z1, z2).item() == pytest.approx(-0.5 * (h1 + weight * rec1 + h2 + weight * rec2))


@every_family
def test_defaults_are_the_papers_plugin_with_its_own_density_as_kernel(density: Family) -> None:
    z1, z2 = views(2)
    bounds = [er_bound(a, b, density, density, "plugin", leave_one_out=False).value.item() for a, b in ((z1, z2), (z2, z1))]
    assert ERLoss(density)(z1, z2).item() == pytest.approx(-sum(bounds) / 2)


def test_value_includes_the_constants_of_kernel_and_density() -> None:
    z1, z2 = views(2)
    exact = float(Gaussian(0.7).log_normalizer(3)) - float(VonMisesFisher(5.0).log_normalizer(3))
    loss = ERLoss(Gaussian(0.7), VonMisesFisher(5.0))(z1, z2)
    unit = torch.nn.functional.normalize
    free_entropy = sum(
        kde_entropy(unit(z, dim=1), VonMisesFisher(5.0), "plugin").item() + float(VonMisesFisher(5.0).log_normalizer(3))
        for z in (z1, z2)
    )
    free_reconstruction = -(z1 - z2).square().sum(dim=1).mean().item() / (2 * 0.7**2)
    assert -loss.item() == pytest.approx(free_entropy / 2 + free_reconstruction + exact)


def test_terms_are_those_of_the_objective_and_forward_is_their_loss() -> None:
    z, targets, predictions = views(3), views(2), views(3)
    module = ERLoss(VonMisesFisher(5.0), Gaussian(0.5), "joe", 0.3, leave_one_out=True)
    terms = module.terms(*z, targets=targets, predictions=predictions)
    exact = er_objective(
        z, VonMisesFisher(5.0), Gaussian(0.5), "joe", 0.3, leave_one_out=True, targets=targets, predictions=predictions
    )
    assert [x.item() for x in terms] == [x.item() for x in exact]
    assert module(*z, targets=targets, predictions=predictions).item() == exact.loss.item()
    assert terms.loss.item() == pytest.approx(-(terms.entropy.item() + 0.3 * terms.reconstruction.item()))


def test_teacher_is_reconstructed_from_the_prediction_and_the_entropy_is_the_students_projections() -> None:
    z1, z2, t1, t2, p1, p2 = views(6)
    q = VonMisesFisher(5.0)
    terms = ERLoss(q).terms(z1, z2, targets=(t1, t2), predictions=(p1, p2))
    entropy = (kde_entropy(z1, q, "plugin") + kde_entropy(z2, q, "plugin")) / 2
    rec = (reconstruction(t2, p1, q) + reconstruction(t1, p2, q)) / 2
    assert terms.entropy.item() == pytest.approx(entropy.item())
    assert terms.reconstruction.item() == pytest.approx(rec.item())


def test_no_gradient_reaches_the_teacher() -> None:
    z, targets, predictions = ([x.requires_grad_() for x in views(2)] for _ in range(3))
    loss = ERLoss(VonMisesFisher(5.0))(*z, targets=targets, predictions=predictions)
    gradients = torch.autograd.grad(loss, [*z, *targets, *predictions], allow_unused=True)
    assert [g is None for g in gradients] == [False, False, True, True, False, False]


def test_multi_crop_reconstructs_only_the_views_that_the_teacher_saw() -> None:
    z, targets = views(4), views(2)
    q = VonMisesFisher(5.0)
    pairs = [reconstruction(targets[t], z[s], q).item() for t in range(2) for s in range(4) if s != t]
    terms = ERLoss(q).terms(*z, targets=targets)
    assert terms.reconstruction.item() == pytest.approx(sum(pairs) / 6)
    assert terms.entropy.item() == pytest.approx(sum(kde_entropy(x, q, "plugin").item() for x in z) / 4)


def test_a_descent_step_lowers_the_loss_and_moves_every_view() -> None:
    z = [torch.randn(16, 8, requires_grad=True) for _ in range(3)]
    module = ERLoss(VonMisesFisher(5.0))
    loss = module(*z)
    gradients = torch.autograd.grad(loss, z)
    assert all(g.abs().max() > 0 for g in gradients)
    assert module(*(x - 0.1 * g for x, g in zip(z, gradients, strict=True))) < loss


@every_family
def test_kernel_and_density_may_be_learnt(density: Family) -> None:
    parameters = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in vars(density).values()]
    z = views(2)
    loss = ERLoss(type(density)(*parameters))(*z)
    assert loss.item() == pytest.approx(ERLoss(density)(*z).item())
    for gradient in torch.autograd.grad(loss, parameters):
        assert gradient.abs().item() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_family
def test_half_precision_gives_a_float32_loss_and_gradients_within_its_precision(density: Family, dtype: torch.dtype) -> None:
    z = [torch.randn(16, 8).to(dtype).requires_grad_() for _ in range(2)]
    loss, exact = ERLoss(density)(*z), ERLoss(density)(*(x.double() for x in z))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-5)
    eps = torch.finfo(dtype).eps
    for gradient, true in zip(torch.autograd.grad(loss, z), torch.autograd.grad(exact, z), strict=True):
        torch.testing.assert_close(gradient.double(), true.double(), rtol=4 * eps, atol=4 * eps)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_temperatures_stay_finite(dtype: torch.dtype, temperature: float) -> None:
    z = [torch.randn(16, 8).to(dtype).requires_grad_() for _ in range(2)]
    for leave_one_out in (False, True):
        loss = ERLoss(VonMisesFisher(1 / temperature), leave_one_out=leave_one_out)(*z)
        assert torch.isfinite(loss)
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, z))


@every_family
def test_autocast_changes_neither_value_nor_gradient(density: Family) -> None:
    z = [torch.randn(16, 8, requires_grad=True) for _ in range(2)]
    module = ERLoss(density)
    loss = module(*z)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = module(*z)
    assert inside.dtype == torch.float32
    assert inside.item() == loss.item()
    for a, b in zip(torch.autograd.grad(inside, z), torch.autograd.grad(loss, z), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_collapse_costs_the_entropy_and_nothing_else() -> None:
    k = 16
    density = VonMisesFisher(50.0)
    module = ERLoss(density, estimator="joe")
    collapsed, spread = torch.ones(k, k, dtype=torch.float64), torch.eye(k, dtype=torch.float64)
    assert module(collapsed, collapsed).item() == pytest.approx(0.0, abs=1e-12)
    assert module(spread, spread).item() == pytest.approx(-math.log(k), abs=1e-9)


def test_repr_shows_the_settings() -> None:
    shown = repr(ERLoss(VonMisesFisher(5.0), estimator="joe", weight=0.5, leave_one_out=True))
    for setting in ("VonMisesFisher(kappa=5.0)", "'joe'", "weight=0.5", "leave_one_out=True"):
        assert setting in shown


def test_calling_twice_changes_nothing() -> None:
    z = views(2)
    module = ERLoss(VonMisesFisher(5.0))
    assert module(*z).item() == module(*z).item()
    assert not list(module.state_dict())
