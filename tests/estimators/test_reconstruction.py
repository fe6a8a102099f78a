import math

import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher, reconstruction

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal

EVERY_FAMILY: list[Family] = [VonMisesFisher(3.0), Gaussian(0.7), Laplace(0.4), GeneralizedNormal(1.5, 0.8)]
every_family = pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_reconstruction_is_scipys_mean_log_density_constant_included() -> None:
    target, source = doubles(2, 6, 4)
    exact = scipy.stats.norm.logpdf(target, loc=source, scale=0.7).sum(axis=1).mean()
    assert reconstruction(target, source, Gaussian(0.7)).item() == pytest.approx(exact)


@every_family
def test_reconstruction_is_the_mean_over_matching_rows(density: Family) -> None:
    target, source = doubles(2, 6, 4)
    by_hand = sum(density.log_prob(target[i : i + 1], source[i : i + 1]).item() for i in range(6)) / 6
    assert reconstruction(target, source, density).item() == pytest.approx(by_hand, rel=1e-12)


@every_family
def test_nothing_reconstructs_better_than_the_target_itself(density: Family) -> None:
    target, source = doubles(2, 6, 4)
    best = reconstruction(target, target, density).item()
    assert best == pytest.approx(density.log_prob(target[:1], target[:1]).item())
    assert reconstruction(target, source, density).item() < best


def test_squared_distance_of_unit_vectors_is_a_von_mises_fisher_of_kappa_two() -> None:
    target, source = doubles(2, 6, 4)
    byol = (functional.normalize(target, dim=1) - functional.normalize(source, dim=1)).square().sum(dim=1).mean()
    density = VonMisesFisher(2.0)
    exact = 2 - byol.item() + float(density.log_normalizer(4))
    assert reconstruction(target, source, density).item() == pytest.approx(exact)


def test_cosine_at_temperature_tau_is_a_von_mises_fisher_of_kappa_one_over_tau() -> None:
    target, source = doubles(2, 6, 4)
    density = VonMisesFisher(1 / 0.1)
    exact = functional.cosine_similarity(target, source).mean().item() / 0.1 + float(density.log_normalizer(4))
    assert reconstruction(target, source, density).item() == pytest.approx(exact)


@every_family
def test_order_of_pairs_does_not_matter_but_the_pairing_does(density: Family) -> None:
    target = doubles(20, 4)
    source = target + 0.1 * doubles(20, 4)
    order = torch.randperm(20)
    value = reconstruction(target, source, density)
    torch.testing.assert_close(reconstruction(target[order], source[order], density), value)
    assert reconstruction(target, source.roll(1, 0), density) < value


@pytest.mark.parametrize("density", EVERY_FAMILY[:2], ids=repr)
def test_rotating_both_views_does_not_matter(density: Family) -> None:
    target, source = doubles(2, 6, 4)
    rotation, _ = torch.linalg.qr(doubles(4, 4))
    value = reconstruction(target, source, density)
    torch.testing.assert_close(reconstruction(target @ rotation, source @ rotation, density), value)


def test_variance_falls_as_one_over_k_under_the_squared_range() -> None:
    kappa, repeats = 4.0, 4000
    for k in (1, 16):
        target, source = doubles(2, repeats, k, 3)
        density = VonMisesFisher(kappa)
        single = density.log_prob(target.reshape(-1, 3), source.reshape(-1, 3)).reshape(repeats, k)
        variance = single.mean(dim=1).var().item()
        assert variance <= kappa**2 / k
        # cos is uniform on [-1, 1] for independent directions in three dimensions, so the variance is known.
        assert variance == pytest.approx(kappa**2 / 3 / k, rel=0.15)
        value = reconstruction(target[0], source[0], density).item()
        assert value == pytest.approx(single[0].mean().item())


def test_expectation_of_a_true_gaussian_conditional_is_minus_its_entropy() -> None:
    source = doubles(100_000, 3)
    value = reconstruction(source + 0.5 * doubles(100_000, 3), source, Gaussian(0.5)).item()
    exact = -3 / 2 * math.log(2 * math.pi * math.e * 0.25)
    assert value == pytest.approx(exact, abs=4 * math.sqrt(3 / 2 / 100_000))


@every_family
def test_reconstruction_passes_gradcheck_in_points_and_parameters(density: Family) -> None:
    def of_parameters(target: Tensor, source: Tensor, *parameters: Tensor) -> Tensor:
        return reconstruction(target, source, type(density)(*parameters))

    learnt = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in vars(density).values()]
    assert gradcheck(of_parameters, (doubles(4, 3).requires_grad_(), doubles(4, 3).requires_grad_(), *learnt))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_family
def test_half_precision_is_computed_in_float32(density: Family, dtype: torch.dtype) -> None:
    target, source = (torch.randn(16, 8).to(dtype).requires_grad_() for _ in range(2))
    value, exact = reconstruction(target, source, density), reconstruction(target.double(), source.double(), density)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    eps = torch.finfo(dtype).eps
    gradients, truths = torch.autograd.grad(value, (target, source)), torch.autograd.grad(exact, (target, source))
    for gradient, true in zip(gradients, truths, strict=True):
        torch.testing.assert_close(gradient.double(), true.double(), rtol=4 * eps, atol=4 * eps)
