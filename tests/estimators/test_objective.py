import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from entrec import (
    Gaussian,
    GeneralizedNormal,
    Laplace,
    VonMisesFisher,
    discrete_entropy,
    discrete_er_objective,
    discrete_reconstruction,
    er_bound,
    er_objective,
    kde_entropy,
    reconstruction,
)
from entrec.estimators.entropy import Estimator

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal

EVERY_FAMILY: list[Family] = [VonMisesFisher(3.0), Gaussian(0.7), Laplace(0.4), GeneralizedNormal(1.5, 0.8)]
every_family = pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
both_estimators = pytest.mark.parametrize("estimator", ["joe", "plugin"])


def views(v: int, k: int = 6, d: int = 3) -> list[Tensor]:
    return [torch.randn(k, d, dtype=torch.float64) for _ in range(v)]


def codes(v: int, k: int = 6, d: int = 3) -> list[Tensor]:
    return [torch.softmax(z, dim=1) for z in views(v, k, d)]


def mean_over_pairs(sources: Sequence[Tensor], targets: Sequence[Tensor], density: Family) -> float:
    values = []
    for t, target in enumerate(targets):
        for s, source in enumerate(sources):
            if s != t:
                values.append(reconstruction(target, source, density).item())
    return sum(values) / len(values)


def discrete_mean_over_pairs(sources: Sequence[Tensor], targets: Sequence[Tensor], temperature: float) -> float:
    values = []
    for t, target in enumerate(targets):
        for s, source in enumerate(sources):
            if s != t:
                values.append(discrete_reconstruction(target, torch.log_softmax(source / temperature, dim=1)).item())
    return sum(values) / len(values)


@pytest.mark.parametrize("leave_one_out", [False, True])
@both_estimators
@every_family
@pytest.mark.parametrize("v", [2, 3, 4])
def test_views_give_the_mean_entropy_and_the_mean_over_ordered_pairs(
    v: int, density: Family, estimator: Estimator, leave_one_out: bool
) -> None:
    z = views(v)
    kernel = density.with_bandwidth(0.5)
    entropy = sum(kde_entropy(x, kernel, estimator, leave_one_out).item() for x in z) / v
    rec = mean_over_pairs(z, z, density)
    result = er_objective(z, density, kernel, estimator, weight=0.7, leave_one_out=leave_one_out)
    assert result.entropy.item() == pytest.approx(entropy, abs=1e-10)
    assert result.reconstruction.item() == pytest.approx(rec, abs=1e-10)
    assert result.loss.item() == pytest.approx(-(entropy + 0.7 * rec), abs=1e-10)


@both_estimators
@every_family
def test_two_views_at_weight_one_are_minus_the_mean_of_both_er_bounds(density: Family, estimator: Estimator) -> None:
    z1, z2 = views(2)
    bounds = er_bound(z1, z2, density, estimator=estimator).value + er_bound(z2, z1, density, estimator=estimator).value
    assert er_objective((z1, z2), density, estimator=estimator).loss.item() == pytest.approx(-bounds.item() / 2, abs=1e-12)


def test_default_estimator_is_the_plugin_with_the_density_as_kernel() -> None:
    z = views(2)
    density = VonMisesFisher(5.0)
    exact = er_objective(z, density, density, "plugin", 1.0, False).loss
    assert er_objective(z, density).loss.item() == exact.item()


@every_family
def test_order_of_views_does_not_matter(density: Family) -> None:
    z = views(3)
    torch.testing.assert_close(er_objective(z[::-1], density).loss, er_objective(z, density).loss)
    torch.testing.assert_close(discrete_er_objective(z[::-1]).loss, discrete_er_objective(z).loss)


def test_order_of_samples_and_rotations_do_not_matter() -> None:
    z = views(3, k=9)
    order = torch.randperm(9)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    for density in EVERY_FAMILY[:2]:
        same = er_objective([x[order] @ rotation for x in z], density)
        torch.testing.assert_close(same.loss, er_objective(z, density).loss)


@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_targets_are_reconstructed_from_every_other_view_and_their_entropy_does_not_count(t: int) -> None:
    z, targets = views(4), views(t)
    density = VonMisesFisher(5.0)
    entropy = sum(kde_entropy(x, density, "plugin").item() for x in z) / 4
    rec = mean_over_pairs(z, targets, density)
    result = er_objective(z, density, targets=targets)
    assert result.entropy.item() == pytest.approx(entropy, abs=1e-10)
    assert result.reconstruction.item() == pytest.approx(rec, abs=1e-10)


def test_predictions_take_the_views_place_in_the_reconstruction_only() -> None:
    z, targets, predictions = views(3), views(2), views(3)
    density = VonMisesFisher(5.0)
    result = er_objective(z, density, targets=targets, predictions=predictions)
    entropy = sum(kde_entropy(x, density, "plugin").item() for x in z) / 3
    assert result.entropy.item() == pytest.approx(entropy, abs=1e-10)
    assert result.reconstruction.item() == pytest.approx(mean_over_pairs(predictions, targets, density), abs=1e-10)


def test_no_gradient_flows_into_targets_and_the_entropy_gives_none_to_predictions() -> None:
    z, targets, predictions = ([x.requires_grad_() for x in views(2)] for _ in range(3))
    result = er_objective(z, VonMisesFisher(5.0), targets=targets, predictions=predictions)
    gradients = torch.autograd.grad(result.loss, [*z, *targets, *predictions], allow_unused=True, retain_graph=True)
    assert [g is None for g in gradients] == [False, False, True, True, False, False]
    of_entropy = torch.autograd.grad(result.entropy, [*z, *predictions], allow_unused=True, retain_graph=True)
    assert [g is None for g in of_entropy] == [False, False, True, True]
    of_reconstruction = torch.autograd.grad(result.reconstruction, [*z, *predictions], allow_unused=True)
    assert [g is None for g in of_reconstruction] == [True, True, False, False]


def test_without_a_teacher_gradients_flow_into_both_sides_of_a_pair() -> None:
    z1, z2 = (x.requires_grad_() for x in views(2))
    density = Gaussian(0.7)
    (whole,) = torch.autograd.grad(er_objective((z1, z2), density).reconstruction, z1)
    (once,) = torch.autograd.grad(reconstruction(z1, z2.detach(), density), z1)
    torch.testing.assert_close(whole, once)  # half of it from each direction


def test_weight_zero_leaves_the_entropy_alone() -> None:
    z = views(2)
    result = er_objective(z, VonMisesFisher(5.0), weight=0.0)
    assert result.loss.item() == pytest.approx(-result.entropy.item(), abs=1e-12)


def test_weight_lambda_has_the_gradient_of_a_bound_with_kappa_times_lambda() -> None:
    kappa, weight = 4.0, 2.5
    z1, z2 = (x.requires_grad_() for x in views(2))
    kernel = VonMisesFisher(kappa)
    weighted = er_objective((z1, z2), VonMisesFisher(kappa), kernel, weight=weight).loss
    matching = er_objective((z1, z2), VonMisesFisher(weight * kappa), kernel).loss
    for ours, theirs in zip(torch.autograd.grad(weighted, (z1, z2)), torch.autograd.grad(matching, (z1, z2)), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert abs(weighted.item() - matching.item()) > 1.0  # but it is not that bound


def test_loss_keeps_its_digits_under_constants_of_a_hundred_thousand_nats() -> None:
    z = torch.randn(2, 8, 65536)
    exact = er_objective(list(z.double()), VonMisesFisher(10.0)).loss.item()
    assert er_objective(list(z), VonMisesFisher(10.0)).loss.item() == pytest.approx(exact, abs=2e-5)


@pytest.mark.parametrize("leave_one_out", [False, True])
@both_estimators
@every_family
def test_objective_passes_gradcheck_in_views_predictions_and_parameters(
    density: Family, estimator: Estimator, leave_one_out: bool
) -> None:
    targets = views(1, k=4)

    def loss(z1: Tensor, z2: Tensor, p1: Tensor, p2: Tensor, *parameters: Tensor) -> Tensor:
        q = type(density)(*parameters)
        alone = er_objective((z1, z2), q, None, estimator, 0.7, leave_one_out).loss
        return alone + er_objective((z1, z2), q, None, estimator, targets=targets, predictions=(p1, p2)).loss

    learnt = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in vars(density).values()]
    assert gradcheck(loss, (*(x.requires_grad_() for x in views(4, k=4)), *learnt))


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("v", [2, 3, 4])
def test_discrete_views_give_the_mean_entropy_and_the_mean_over_ordered_pairs(v: int, chunks: int) -> None:
    logits = views(v)
    tau = 0.3
    probabilities = [torch.softmax(x / tau, dim=1) for x in logits]
    entropy = sum(discrete_entropy(p, chunks).item() for p in probabilities) / v
    rec = discrete_mean_over_pairs(logits, probabilities, tau)
    result = discrete_er_objective(logits, tau, weight=0.7, chunks=chunks)
    assert result.entropy.item() == pytest.approx(entropy, abs=1e-10)
    assert result.reconstruction.item() == pytest.approx(rec, abs=1e-10)
    assert result.loss.item() == pytest.approx(-(entropy + 0.7 * rec), abs=1e-10)


@pytest.mark.parametrize("t", [1, 2, 4])
def test_discrete_entropy_is_that_of_the_students_own_softmax_whatever_the_targets(t: int) -> None:
    logits, targets, predictions = views(4), codes(t), views(4)
    tau = 0.3
    result = discrete_er_objective(logits, tau, targets=targets, predictions=predictions)
    entropy = sum(discrete_entropy(torch.softmax(x / tau, dim=1)).item() for x in logits) / 4
    assert result.entropy.item() == pytest.approx(entropy, abs=1e-10)
    assert result.reconstruction.item() == pytest.approx(discrete_mean_over_pairs(predictions, targets, tau), abs=1e-10)


def test_discrete_targets_get_no_gradient_and_the_students_entropy_does() -> None:
    logits = [x.requires_grad_() for x in views(2)]
    targets = [x.detach().requires_grad_() for x in codes(2)]
    result = discrete_er_objective(logits, targets=targets)
    gradients = torch.autograd.grad(result.loss, [*logits, *targets], allow_unused=True, retain_graph=True)
    assert [g is None for g in gradients] == [False, False, True, True]
    for gradient in torch.autograd.grad(result.entropy, logits):
        assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("chunks", [1, 2])
def test_discrete_objective_passes_gradcheck(chunks: int) -> None:
    targets = codes(1, k=4)

    def loss(l1: Tensor, l2: Tensor, p1: Tensor, p2: Tensor) -> Tensor:
        alone = discrete_er_objective((l1, l2), 0.5, 0.7, chunks).loss
        return alone + discrete_er_objective((l1, l2), 0.5, chunks=chunks, targets=targets, predictions=(p1, p2)).loss

    assert gradcheck(loss, tuple(x.requires_grad_() for x in views(4, k=4)))


def test_discrete_objective_at_weight_one_is_at_least_minus_log_d() -> None:
    sharp = [20 * torch.eye(5, dtype=torch.float64)] * 2
    assert discrete_er_objective(sharp).loss.item() == pytest.approx(-math.log(5))
    assert discrete_er_objective(views(2, d=5)).loss.item() > -math.log(5)


def test_temperature_divides_the_logits() -> None:
    logits = views(2)
    hot = discrete_er_objective([0.1 * x for x in logits], temperature=0.1)
    torch.testing.assert_close(discrete_er_objective(logits, temperature=1.0).loss, hot.loss)
