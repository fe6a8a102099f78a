import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher, er_bound, infonce_bound, kde_entropy, reconstruction
from entrec.estimators.entropy import Estimator

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal

EVERY_FAMILY: list[Family] = [VonMisesFisher(3.0), Gaussian(0.7), Laplace(0.4), GeneralizedNormal(1.5, 0.8)]
every_family = pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
both_estimators = pytest.mark.parametrize("estimator", ["joe", "plugin"])


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def correlated_gaussians(k: int, dim: int, rho: float) -> tuple[Tensor, Tensor]:
    z1 = doubles(k, dim)
    return z1, rho * z1 + math.sqrt(1 - rho**2) * doubles(k, dim)


def mutual_information(dim: int, rho: float) -> float:
    return -dim / 2 * math.log(1 - rho**2)


def mean_and_standard_error(values: list[float]) -> tuple[float, float]:
    x = torch.tensor(values, dtype=torch.float64)
    return x.mean().item(), x.std().item() / math.sqrt(len(values))


def exact_entropy_plus_reconstruction(dim: int, rho: float, slope: float, sigma: float) -> tuple[float, float]:
    """Mean and standard error over repeats, with q(z2 | z1) = N(slope z1, sigma^2)."""
    entropy = dim / 2 * math.log(2 * math.pi * math.e)
    values = []
    for _ in range(60):
        z1, z2 = correlated_gaussians(100, dim, rho)
        values.append(entropy + reconstruction(z2, slope * z1, Gaussian(sigma)).item())
    return mean_and_standard_error(values)


@pytest.mark.parametrize("rho", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("dim", [1, 2, 10])
def test_exact_entropy_plus_true_conditional_equals_the_mutual_information(dim: int, rho: float) -> None:
    mean, error = exact_entropy_plus_reconstruction(dim, rho, slope=rho, sigma=math.sqrt(1 - rho**2))
    assert abs(mean - mutual_information(dim, rho)) <= 3 * error


@pytest.mark.parametrize(("slope", "factor"), [(1.0, 0.5), (1.0, 2.0), (0.9, 0.7), (0.9, 1.5), (1.0, 1.0), (0.0, 1.0)])
@pytest.mark.parametrize("dim", [1, 2, 10])
def test_exact_entropy_plus_any_other_density_stays_below_the_mutual_information(dim: int, slope: float, factor: float) -> None:
    rho = 0.9
    sigma = factor * math.sqrt(1 - rho**2)
    mean, error = exact_entropy_plus_reconstruction(dim, rho, slope, sigma)
    assert mean <= mutual_information(dim, rho) + 3 * error
    # The gap is the mean Kullback-Leibler divergence of two Gaussians, which is known.
    gap = dim * (math.log(factor) + (1 - rho**2 + (rho - slope) ** 2) / (2 * sigma**2) - 0.5)
    assert abs(mean - (mutual_information(dim, rho) - gap)) <= 3.5 * error


@pytest.mark.parametrize("spread", [1e-2, 1.0, 1e2])
@both_estimators
@every_family
def test_er_bound_with_the_self_term_never_passes_log_k(density: Family, estimator: Estimator, spread: float) -> None:
    for z1, z2 in (
        spread * doubles(2, 20, 3),
        spread * doubles(1, 20, 3).expand(2, 20, 3),
        correlated_gaussians(20, 3, 0.999),
    ):
        assert er_bound(z1, z2, density, estimator=estimator).value.item() <= math.log(20) + 1e-9


@both_estimators
@pytest.mark.parametrize("k", [1, 2, 50])
def test_er_bound_attains_log_k_where_pairs_agree_and_nothing_else_is_near(k: int, estimator: Estimator) -> None:
    far_apart = 100 * torch.arange(float(k), dtype=torch.float64)[:, None]
    for density in EVERY_FAMILY[1:]:
        value = er_bound(far_apart, far_apart, density, estimator=estimator).value
        assert value.item() == pytest.approx(math.log(k), abs=1e-9)
    orthogonal = torch.eye(k + 1, dtype=torch.float64)
    value = er_bound(orthogonal, orthogonal, VonMisesFisher(200.0), estimator=estimator).value
    assert value.item() == pytest.approx(math.log(k + 1), abs=1e-9)


def test_er_bound_with_leave_one_out_can_pass_the_mutual_information_and_log_k() -> None:
    dim, rho, k = 10, 0.9, 100
    density = Gaussian(math.sqrt(1 - rho**2))
    without_self, with_self = [], []
    for _ in range(10):
        z1, z2 = correlated_gaussians(k, dim, rho)
        without_self.append(er_bound(rho * z1, z2, density, leave_one_out=True).value.item())
        with_self.append(er_bound(rho * z1, z2, density).value.item())
    mean, error = mean_and_standard_error(without_self)
    assert mean - 3 * error > mutual_information(dim, rho) > math.log(k)
    assert max(with_self) <= math.log(k)


def test_er_bound_with_leave_one_out_is_close_for_many_points_in_few_dimensions() -> None:
    dim, rho, k = 1, 0.9, 2000
    z1, z2 = correlated_gaussians(k, dim, rho)
    value = er_bound(rho * z1, z2, Gaussian(math.sqrt(1 - rho**2)), kernel=Gaussian(k ** (-1 / 5)), leave_one_out=True).value
    assert value.item() == pytest.approx(mutual_information(dim, rho), abs=0.1)


@pytest.mark.parametrize("leave_one_out", [False, True])
@both_estimators
@every_family
def test_er_bound_is_kde_entropy_plus_reconstruction(density: Family, estimator: Estimator, leave_one_out: bool) -> None:
    z1, z2 = doubles(2, 9, 3)
    for kernel in (None, density.with_bandwidth(0.5), Gaussian(0.3)):
        bound = er_bound(z1, z2, density, kernel, estimator, leave_one_out)
        entropy = kde_entropy(z2, density if kernel is None else kernel, estimator, leave_one_out)
        rec = reconstruction(z2, z1, density)
        torch.testing.assert_close(bound.entropy, entropy, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(bound.reconstruction, rec, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(bound.value, entropy + rec, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dim", [2048, 65536])
def test_value_of_the_bound_keeps_its_digits_under_constants_of_a_hundred_thousand_nats(dim: int) -> None:
    z1, z2 = torch.randn(2, 8, dim)
    for density in (VonMisesFisher(10.0), Gaussian(math.sqrt(dim))):
        exact = er_bound(z1.double(), z2.double(), density).value.item()
        assert er_bound(z1, z2, density).value.item() == pytest.approx(exact, abs=2e-5)
    cross = er_bound(z1, z2, VonMisesFisher(10.0), VonMisesFisher(11.0)).value.item()
    exact = er_bound(z1.double(), z2.double(), VonMisesFisher(10.0), VonMisesFisher(11.0)).value.item()
    assert cross == pytest.approx(exact, abs=2e-5)


def contrastive_loss(z1: Tensor, z2: Tensor, density: Family) -> float:
    """Positive pairs against the negatives Z2_(j != i), in plain loops; log q without its constant is the similarity."""
    log_c = float(density.log_normalizer(z1.shape[1]))
    total = 0.0
    for i in range(len(z2)):
        positive = density.log_prob(z2[i : i + 1], z1[i : i + 1]).item() - log_c
        others = [density.log_prob(z2[i : i + 1], z2[j : j + 1]).item() - log_c for j in range(len(z2)) if j != i]
        total += math.log(sum(math.exp(s) for s in others)) - positive
    return total / len(z2)


@every_family
def test_minus_er_is_the_contrastive_loss_less_log_of_the_number_of_negatives(density: Family) -> None:
    k = 8
    z1, z2 = doubles(2, k, 3)
    value = er_bound(z1, z2, density, estimator="joe", leave_one_out=True).value.item()
    assert -value == pytest.approx(contrastive_loss(z1, z2, density) - math.log(k - 1), abs=1e-10)


@every_family
def test_infonce_is_the_mean_log_ratio_to_the_mean_over_the_batch(density: Family) -> None:
    k = 8
    z1, z2 = doubles(2, k, 3)
    total = 0.0
    for i in range(k):
        q = [math.exp(density.log_prob(z2[j : j + 1], z1[i : i + 1]).item()) for j in range(k)]
        total += math.log(q[i] / (sum(q) / k))
    assert infonce_bound(z1, z2, density).item() == pytest.approx(total / k, abs=1e-10)


def test_infonce_is_log_k_less_the_cross_entropy_of_the_right_partner() -> None:
    z1, z2 = doubles(2, 16, 5)
    logits = functional.normalize(z1, dim=1) @ functional.normalize(z2, dim=1).T / 0.1
    loss = functional.cross_entropy(logits, torch.arange(16))
    assert infonce_bound(z1, z2, VonMisesFisher(1 / 0.1)).item() == pytest.approx(math.log(16) - loss.item())


@pytest.mark.parametrize("spread", [1e-2, 1.0, 1e2])
@every_family
def test_infonce_never_passes_log_k(density: Family, spread: float) -> None:
    for z1, z2 in (spread * doubles(2, 20, 3), spread * doubles(1, 20, 3).expand(2, 20, 3)):
        assert infonce_bound(z1, z2, density).item() <= math.log(20) + 1e-9


@every_family
def test_infonce_is_zero_for_one_pair_and_for_equal_pairs(density: Family) -> None:
    z1, z2 = doubles(2, 1, 3)
    assert infonce_bound(z1, z2, density).item() == pytest.approx(0.0, abs=1e-12)
    assert infonce_bound(z1.expand(9, 3), z2.expand(9, 3), density).item() == pytest.approx(0.0, abs=1e-12)


def test_infonce_attains_log_k_where_every_pair_finds_its_partner() -> None:
    assert infonce_bound(torch.eye(12), torch.eye(12), VonMisesFisher(200.0)).item() == pytest.approx(math.log(12))


def test_infonce_stays_below_the_mutual_information() -> None:
    dim, rho = 1, 0.9
    values = []
    for _ in range(30):
        z1, z2 = correlated_gaussians(200, dim, rho)
        values.append(infonce_bound(rho * z1, z2, Gaussian(math.sqrt(1 - rho**2))).item())
    mean, error = mean_and_standard_error(values)
    assert 0.8 * mutual_information(dim, rho) < mean <= mutual_information(dim, rho) + 3 * error


@every_family
def test_order_of_pairs_does_not_matter(density: Family) -> None:
    z1, z2 = doubles(2, 12, 3)
    order = torch.randperm(12)
    for leave_one_out in (False, True):
        value = er_bound(z1, z2, density, leave_one_out=leave_one_out).value
        torch.testing.assert_close(er_bound(z1[order], z2[order], density, leave_one_out=leave_one_out).value, value)
    torch.testing.assert_close(infonce_bound(z1[order], z2[order], density), infonce_bound(z1, z2, density))


@pytest.mark.parametrize("density", EVERY_FAMILY[:2], ids=repr)
def test_rotating_both_views_does_not_matter(density: Family) -> None:
    z1, z2 = doubles(2, 12, 3)
    rotation, _ = torch.linalg.qr(doubles(3, 3))
    turned = z1 @ rotation, z2 @ rotation
    torch.testing.assert_close(er_bound(*turned, density).value, er_bound(z1, z2, density).value)
    torch.testing.assert_close(infonce_bound(*turned, density), infonce_bound(z1, z2, density))


@pytest.mark.parametrize("leave_one_out", [False, True])
@both_estimators
@every_family
def test_every_part_of_the_bound_passes_gradcheck(density: Family, estimator: Estimator, leave_one_out: bool) -> None:
    def parts(z1: Tensor, z2: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        return tuple(er_bound(z1, z2, type(density)(*parameters), estimator=estimator, leave_one_out=leave_one_out))

    learnt = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in vars(density).values()]
    assert gradcheck(parts, (doubles(4, 3).requires_grad_(), doubles(4, 3).requires_grad_(), *learnt))


@every_family
def test_infonce_passes_gradcheck(density: Family) -> None:
    def bound(z1: Tensor, z2: Tensor, *parameters: Tensor) -> Tensor:
        return infonce_bound(z1, z2, type(density)(*parameters))

    learnt = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in vars(density).values()]
    assert gradcheck(bound, (doubles(4, 3).requires_grad_(), doubles(4, 3).requires_grad_(), *learnt))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_family
def test_half_precision_is_computed_in_float32(density: Family, dtype: torch.dtype) -> None:
    z1, z2 = (torch.randn(16, 8).to(dtype).requires_grad_() for _ in range(2))
    eps = torch.finfo(dtype).eps
    for value, exact in (
        (er_bound(z1, z2, density).value, er_bound(z1.double(), z2.double(), density).value),
        (infonce_bound(z1, z2, density), infonce_bound(z1.double(), z2.double(), density)),
    ):
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-5)
        gradients, truths = torch.autograd.grad(value, (z1, z2)), torch.autograd.grad(exact, (z1, z2))
        for gradient, true in zip(gradients, truths, strict=True):
            torch.testing.assert_close(gradient.double(), true.double(), rtol=4 * eps, atol=4 * eps)


@pytest.mark.parametrize("density", [*EVERY_FAMILY[1:], GeneralizedNormal(2.0, 0.01)], ids=repr)
def test_ceilings_hold_far_from_the_origin_in_float32(density: Family) -> None:
    z = torch.randn(40, 3) + 1000  # more points than the size where a distance matrix may take another way
    rounding = 1e-4
    assert er_bound(z, z, density).value.item() <= math.log(40) + rounding
    assert infonce_bound(z, z, density).item() <= math.log(40) + rounding
