import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.autograd import gradcheck

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher, kde_entropy, kde_log_density
from entrec.estimators.entropy import Estimator
from entrec.estimators.sphere import vmf_mean_cosine

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal

EVERY_FAMILY: list[Family] = [VonMisesFisher(3.0), Gaussian(0.7), Laplace(0.4), GeneralizedNormal(1.5, 0.8)]
every_family = pytest.mark.parametrize("kernel", EVERY_FAMILY, ids=repr)
both_estimators = pytest.mark.parametrize("estimator", ["joe", "plugin"])
with_and_without_self = pytest.mark.parametrize("leave_one_out", [False, True], ids=["self_term", "leave_one_out"])


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def log_density_by_hand(z: Tensor, kernel: Family, reference: Tensor, leave_one_out: bool) -> Tensor:
    logs = []
    for i in range(len(z)):
        carriers = [j for j in range(len(reference)) if not (leave_one_out and j == i)]
        densities = [math.exp(kernel.log_prob(z[i : i + 1], reference[j : j + 1]).item()) for j in carriers]
        logs.append(math.log(sum(densities) / len(densities)))
    return torch.tensor(logs, dtype=torch.float64)


@with_and_without_self
@every_family
def test_log_density_is_the_log_of_the_mean_density(kernel: Family, leave_one_out: bool) -> None:
    z = doubles(7, 3)
    exact = log_density_by_hand(z, kernel, z, leave_one_out)
    torch.testing.assert_close(kde_log_density(z, kernel, leave_one_out=leave_one_out), exact, rtol=1e-10, atol=1e-10)


@every_family
def test_log_density_under_other_points_of_any_number(kernel: Family) -> None:
    z, reference = doubles(4, 3), doubles(9, 3)
    exact = log_density_by_hand(z, kernel, reference, leave_one_out=False)
    torch.testing.assert_close(kde_log_density(z, kernel, reference), exact, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kde_log_density(z, kernel, z.clone()), kde_log_density(z, kernel))


@with_and_without_self
@every_family
def test_joe_is_minus_the_mean_and_plugin_minus_the_density_weighted_mean(kernel: Family, leave_one_out: bool) -> None:
    z = doubles(7, 3)
    logs = log_density_by_hand(z, kernel, z, leave_one_out).tolist()
    total = sum(math.exp(log) for log in logs)
    joe = -sum(logs) / len(logs)
    plugin = -sum(math.exp(log) / total * log for log in logs)
    assert kde_entropy(z, kernel, "joe", leave_one_out).item() == pytest.approx(joe, rel=1e-10)
    assert kde_entropy(z, kernel, "plugin", leave_one_out).item() == pytest.approx(plugin, rel=1e-10)


@with_and_without_self
@both_estimators
@every_family
@pytest.mark.parametrize("k", [2, 3, 50])
def test_equal_points_have_the_floor_as_entropy(k: int, kernel: Family, estimator: Estimator, leave_one_out: bool) -> None:
    z = doubles(1, 4).expand(k, 4)
    floor = -kernel.log_prob(z[:1], z[:1]).item()
    assert kde_entropy(z, kernel, estimator, leave_one_out).item() == pytest.approx(floor, abs=1e-12)
    torch.testing.assert_close(kde_log_density(z, kernel), kernel.log_prob(z, z))


@both_estimators
@pytest.mark.parametrize("kappa", [0.5, 10.0, 300.0])
@pytest.mark.parametrize("dim", [2, 3, 1000])
def test_two_opposite_directions_have_a_closed_form(dim: int, kappa: float, estimator: Estimator) -> None:
    direction = doubles(1, dim)
    z = torch.cat([direction, -2 * direction])
    kernel = VonMisesFisher(kappa)
    log_c = float(kernel.log_normalizer(dim))
    log_cosh = kappa + math.log1p(math.exp(-2 * kappa)) - math.log(2)
    assert kde_entropy(z, kernel, estimator).item() == pytest.approx(-log_cosh - log_c, rel=1e-12)
    assert kde_entropy(z, kernel, estimator, leave_one_out=True).item() == pytest.approx(kappa - log_c, rel=1e-12)


@both_estimators
def test_two_points_on_a_line_have_a_closed_form(estimator: Estimator) -> None:
    sigma, distance = 0.7, 1.3
    z = torch.tensor([[0.0], [distance]], dtype=torch.float64)
    log_c = -math.log(sigma * math.sqrt(2 * math.pi))
    other = math.exp(-(distance**2) / (2 * sigma**2))
    assert kde_entropy(z, Gaussian(sigma), estimator).item() == pytest.approx(-math.log((1 + other) / 2) - log_c)
    assert kde_entropy(z, Gaussian(sigma), estimator, leave_one_out=True).item() == pytest.approx(-math.log(other) - log_c)


@both_estimators
def test_orthogonal_directions_have_a_closed_form(estimator: Estimator) -> None:
    k, kappa = 6, 4.0
    log_c = float(VonMisesFisher(kappa).log_normalizer(k))
    z = torch.eye(k, dtype=torch.float64)
    with_self = -math.log((math.exp(kappa) + k - 1) / k) - log_c
    assert kde_entropy(z, VonMisesFisher(kappa), estimator).item() == pytest.approx(with_self)
    assert kde_entropy(z, VonMisesFisher(kappa), estimator, leave_one_out=True).item() == pytest.approx(-log_c)


@both_estimators
@every_family
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
def test_self_term_keeps_the_entropy_between_floor_and_floor_plus_log_k(
    spread: float, kernel: Family, estimator: Estimator
) -> None:
    z = doubles(1, 4) + spread * doubles(30, 4)
    floor = -kernel.log_prob(z[:1], z[:1]).item()
    rounding = 1e-9  # of squares of 1e3 in float64
    assert floor - rounding <= kde_entropy(z, kernel, estimator).item() <= floor + math.log(30) + rounding


@both_estimators
@pytest.mark.parametrize("kernel", EVERY_FAMILY[1:], ids=repr)
def test_points_out_of_each_others_reach_attain_floor_plus_log_k(kernel: Family, estimator: Estimator) -> None:
    z = 1e6 * torch.arange(1.0, 21.0, dtype=torch.float64)[:, None].expand(20, 3)
    ceiling = -kernel.log_prob(z[:1], z[:1]).item() + math.log(20)
    assert kde_entropy(z, kernel, estimator).item() == pytest.approx(ceiling, abs=1e-9)


@with_and_without_self
@both_estimators
@every_family
def test_order_of_samples_does_not_matter(kernel: Family, estimator: Estimator, leave_one_out: bool) -> None:
    z = doubles(20, 4)
    value = kde_entropy(z, kernel, estimator, leave_one_out)
    torch.testing.assert_close(kde_entropy(z[torch.randperm(20)], kernel, estimator, leave_one_out), value)


@with_and_without_self
@both_estimators
@pytest.mark.parametrize("kernel", EVERY_FAMILY[:2], ids=repr)
def test_rotations_do_not_matter_to_kernels_of_angle_or_distance(
    kernel: Family, estimator: Estimator, leave_one_out: bool
) -> None:
    z = doubles(20, 4)
    rotation, _ = torch.linalg.qr(doubles(4, 4))
    value = kde_entropy(z, kernel, estimator, leave_one_out)
    torch.testing.assert_close(kde_entropy(z @ rotation, kernel, estimator, leave_one_out), value)


@pytest.mark.parametrize("offset", [1e2, 1e4])
@pytest.mark.parametrize("k", [10, 60])  # a distance matrix may take another way for many points
@pytest.mark.parametrize("kernel", [*EVERY_FAMILY[1:], GeneralizedNormal(2.0, 0.8)], ids=repr)
def test_shifts_do_not_matter_in_float32(kernel: Family, k: int, offset: float) -> None:
    far = torch.randn(k, 4) + offset
    near = (far - offset).double()  # exact: float32 has already rounded the points
    for leave_one_out in (False, True):
        exact = kde_entropy(near, kernel, leave_one_out=leave_one_out).item()
        assert kde_entropy(far, kernel, leave_one_out=leave_one_out).item() == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("kernel", [*EVERY_FAMILY[1:], GeneralizedNormal(2.0, 0.8)], ids=repr)
def test_shifts_do_not_matter_in_float64(kernel: Family) -> None:
    far = doubles(60, 4) + 2.0**20
    exact = kde_entropy(far - 2.0**20, kernel, leave_one_out=True).item()
    assert kde_entropy(far, kernel, leave_one_out=True).item() == pytest.approx(exact, abs=1e-8)


@both_estimators
def test_on_the_sphere_lengths_do_not_matter(estimator: Estimator) -> None:
    z = doubles(10, 4)
    lengths = torch.logspace(-30, 30, 10, dtype=torch.float64)[:, None]
    value = kde_entropy(z, VonMisesFisher(5.0), estimator)
    torch.testing.assert_close(kde_entropy(lengths * z, VonMisesFisher(5.0), estimator), value)


@with_and_without_self
@both_estimators
@every_family
def test_entropy_passes_gradcheck_in_points_and_parameters(kernel: Family, estimator: Estimator, leave_one_out: bool) -> None:
    def entropy(z: Tensor, *parameters: Tensor) -> Tensor:
        return kde_entropy(z, type(kernel)(*parameters), estimator, leave_one_out)

    learnt = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in vars(kernel).values()]
    z = doubles(5, 3).requires_grad_()
    assert gradcheck(entropy, (z, *learnt))
    assert gradcheck(lambda z: kde_entropy(z, kernel, estimator, leave_one_out), (z,))


@every_family
def test_log_density_passes_gradcheck_in_points_reference_and_parameters(kernel: Family) -> None:
    def log_density(z: Tensor, reference: Tensor, *parameters: Tensor) -> Tensor:
        return kde_log_density(z, type(kernel)(*parameters), reference)

    learnt = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in vars(kernel).values()]
    assert gradcheck(log_density, (doubles(4, 3).requires_grad_(), doubles(6, 3).requires_grad_(), *learnt))
    assert gradcheck(lambda z: kde_log_density(z, kernel, leave_one_out=True), (doubles(4, 3).requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@both_estimators
@every_family
def test_half_precision_is_computed_in_float32(kernel: Family, estimator: Estimator, dtype: torch.dtype) -> None:
    z = torch.randn(16, 8).to(dtype).requires_grad_()
    value = kde_entropy(z, kernel, estimator)
    exact = kde_entropy(z.double(), kernel, estimator)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    (gradient,), (true,) = torch.autograd.grad(value, z), torch.autograd.grad(exact, z)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(gradient.double(), true.double(), rtol=4 * eps, atol=4 * eps)


def test_coincident_points_have_finite_gradients() -> None:
    for kernel in (*EVERY_FAMILY, GeneralizedNormal(0.5, 1.0), GeneralizedNormal(2.0, 1.0)):
        z = torch.ones(40, 3, requires_grad=True)
        for leave_one_out in (False, True):
            (gradient,) = torch.autograd.grad(kde_entropy(z, kernel, leave_one_out=leave_one_out), z)
            assert torch.isfinite(gradient).all(), kernel


# What follows is about limits. An error is taken against the same sample's own average of the true log-density, whose
# expectation is the closed form: that removes the noise which both share.

SIZES = {100: 24, 600: 8, 3600: 2}  # number of points: number of samples


def gaussian_sample(k: int, dim: int) -> Tensor:
    return torch.randn(k, dim)


def vmf_sample(k: int, dim: int, kappa: float) -> Tensor:
    seed = int(torch.randint(2**31, ()))
    return torch.from_numpy(scipy.stats.vonmises_fisher(np.eye(dim)[0], kappa).rvs(k, random_state=seed)).float()


def width(k: int, dim: int, estimator: Estimator) -> float:
    # The plug-in looks where points are dense, so its kernel may shrink faster.
    return float(k ** (-1 / (dim + 4)) if estimator == "joe" else 3 * dim**-0.5 * k ** (-1 / (dim + 2)))


def error(z: Tensor, kernel: Family, truth: Family, estimator: Estimator) -> float:
    mode = torch.eye(z.shape[1])[:1] if isinstance(truth, VonMisesFisher) else torch.zeros(1, z.shape[1])
    log_p = truth.log_prob(z, mode.expand_as(z))
    weights = torch.softmax(0 * log_p if estimator == "joe" else log_p, dim=0)
    return (kde_entropy(z, kernel, estimator, leave_one_out=True) + (weights * log_p).sum()).item()


def gaussian_errors(dim: int, estimator: Estimator) -> list[float]:
    errors = []
    for k, repeats in SIZES.items():
        kernel = Gaussian(width(k, dim, estimator))
        errors.append(np.mean([error(gaussian_sample(k, dim), kernel, Gaussian(1.0), estimator) for _ in range(repeats)]))
    return [abs(float(x)) for x in errors]


def vmf_kernel(k: int, dim: int, kappa: float, estimator: Estimator) -> VonMisesFisher:
    return VonMisesFisher(kappa / width(k, dim - 1, estimator) ** 2)


def vmf_errors(dim: int, kappa: float, estimator: Estimator) -> list[float]:
    errors = []
    for k, repeats in SIZES.items():
        kernel, truth = vmf_kernel(k, dim, kappa, estimator), VonMisesFisher(kappa)
        errors.append(np.mean([error(vmf_sample(k, dim, kappa), kernel, truth, estimator) for _ in range(repeats)]))
    return [abs(float(x)) for x in errors]


@pytest.mark.parametrize(("dim", "limit"), [(1, 0.01), (2, 0.02), (5, 0.15)])
def test_joe_approaches_the_entropy_of_a_gaussian(dim: int, limit: float) -> None:
    errors = gaussian_errors(dim, "joe")
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < limit
    closed_form = dim / 2 * math.log(2 * math.pi * math.e)
    value = kde_entropy(gaussian_sample(3600, dim), Gaussian(width(3600, dim, "joe")), "joe", leave_one_out=True)
    assert abs(value.item() - closed_form) < limit + 3 * math.sqrt(dim / 2 / 3600)  # the noise of the sample itself


@pytest.mark.parametrize(("dim", "limit"), [(1, 0.03), (2, 0.08), (5, 0.35)])
def test_plugin_approaches_the_entropy_of_a_gaussian_less_a_quarter_of_its_dimension(dim: int, limit: float) -> None:
    errors = gaussian_errors(dim, "plugin")
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < limit
    closed_form = dim / 2 * math.log(2 * math.pi * math.e) - dim / 4
    value = kde_entropy(gaussian_sample(3600, dim), Gaussian(width(3600, dim, "plugin")), "plugin", leave_one_out=True)
    assert abs(value.item() - closed_form) < limit + 3 * math.sqrt(dim / 2 / 3600)


@pytest.mark.parametrize(("dim", "kappa", "limit"), [(3, 5.0, 0.03), (10, 20.0, 0.3)])
def test_joe_approaches_the_entropy_of_a_von_mises_fisher(dim: int, kappa: float, limit: float) -> None:
    errors = vmf_errors(dim, kappa, "joe")
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < limit
    closed_form = scipy.stats.vonmises_fisher(np.eye(dim)[0], kappa).entropy()
    value = kde_entropy(vmf_sample(3600, dim, kappa), vmf_kernel(3600, dim, kappa, "joe"), "joe", leave_one_out=True)
    assert abs(value.item() - closed_form) < limit + 3 * math.sqrt((dim - 1) / 2 / 3600)


@pytest.mark.parametrize(("dim", "kappa", "limit"), [(3, 5.0, 0.1), (10, 20.0, 0.8)])
def test_plugin_approaches_its_own_limit_on_a_von_mises_fisher(dim: int, kappa: float, limit: float) -> None:
    errors = vmf_errors(dim, kappa, "plugin")
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < limit
    # p^2 is, but for its constant, a von Mises-Fisher of 2 kappa, so that -E[p log p] / E[p] is its mean of -log p.
    closed_form = -(kappa * float(vmf_mean_cosine(2 * kappa, dim)) + float(VonMisesFisher(kappa).log_normalizer(dim)))
    value = kde_entropy(vmf_sample(3600, dim, kappa), vmf_kernel(3600, dim, kappa, "plugin"), "plugin", leave_one_out=True)
    assert abs(value.item() - closed_form) < limit + 3 * math.sqrt((dim - 1) / 2 / 3600)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_at_a_fixed_bandwidth_both_converge_to_functionals_of_the_smoothed_density(dim: int) -> None:
    h, k = 0.6, 3000
    z = gaussian_sample(k, dim)
    # The estimate's limit is N(0, 1 + h^2); under p, and under p times it, -log of it has these means.
    constant = dim / 2 * math.log(2 * math.pi * (1 + h**2))
    joe, plugin = constant + dim / (2 * (1 + h**2)), constant + dim / (2 * (2 + h**2))
    noise = 4 * math.sqrt(dim / 2 / k) + 0.02
    assert abs(kde_entropy(z, Gaussian(h), "joe", leave_one_out=True).item() - joe) < noise
    assert abs(kde_entropy(z, Gaussian(h), "plugin", leave_one_out=True).item() - plugin) < noise
