import math
import random

import mpmath
import pytest
import scipy.special
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from entrec import VonMisesFisher, kde_entropy, log_sphere_area
from entrec.estimators.sphere import vmf_log_normalizer, vmf_mean_cosine
from entrec.pairwise.similarity import to_sphere

DIMS = [2, 3, 5, 10, 18, 19, 32, 64, 128, 256, 512, 1000, 2048, 16384, 65536]
KAPPAS = [1e-3, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4]
TOLERANCE = 1e-12  # relative to max(1, |log C|); the promise to users is 1e-9


def exact_log_normalizer(dim: int, kappa: float) -> float:
    with mpmath.workdps(50):
        nu = mpmath.mpf(dim) / 2 - 1
        log_bessel = mpmath.log(mpmath.besseli(nu, kappa))
        return float(nu * mpmath.log(kappa) - mpmath.mpf(dim) / 2 * mpmath.log(2 * mpmath.pi) - log_bessel)


def exact_mean_cosine(dim: int, kappa: float) -> float:
    with mpmath.workdps(50):
        nu = mpmath.mpf(dim) / 2 - 1
        return float(mpmath.besseli(nu + 1, kappa) / mpmath.besseli(nu, kappa))


def double(kappa: float) -> Tensor:
    return torch.tensor(kappa, dtype=torch.float64, requires_grad=True)


def uniform_on_sphere(k: int, dim: int) -> Tensor:
    return to_sphere(torch.randn(k, dim))


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("dim", DIMS)
def test_log_normalizer_of_a_float_matches_50_digit_arithmetic(dim: int, kappa: float) -> None:
    exact = exact_log_normalizer(dim, kappa)
    value = VonMisesFisher(kappa).log_normalizer(dim)
    assert isinstance(value, float)
    assert abs(value - exact) <= TOLERANCE * max(1.0, abs(exact))


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("dim", DIMS)
def test_log_normalizer_of_a_tensor_matches_50_digit_arithmetic(dim: int, kappa: float) -> None:
    exact = exact_log_normalizer(dim, kappa)
    value = VonMisesFisher(double(kappa)).log_normalizer(dim)
    assert isinstance(value, Tensor)
    assert abs(value.item() - exact) <= TOLERANCE * max(1.0, abs(exact))


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("dim", DIMS)
def test_gradient_of_the_log_normalizer_is_minus_the_bessel_ratio(dim: int, kappa: float) -> None:
    parameter = double(kappa)
    value = VonMisesFisher(parameter).log_normalizer(dim)
    assert isinstance(value, Tensor)
    (gradient,) = torch.autograd.grad(value, parameter)
    assert gradient.item() == pytest.approx(-exact_mean_cosine(dim, kappa), rel=1e-12, abs=0.0)


def test_log_normalizer_holds_between_the_grid_points_too() -> None:
    points = random.Random(0)
    for _ in range(300):
        dim = round(2 ** points.uniform(1, 16))
        kappa = 10 ** points.uniform(-3, 4)
        exact = exact_log_normalizer(dim, kappa)
        value = VonMisesFisher(kappa).log_normalizer(dim)
        assert isinstance(value, float)
        assert abs(value - exact) <= TOLERANCE * max(1.0, abs(exact)), (dim, kappa)


@pytest.mark.parametrize("dim", DIMS)
def test_log_normalizer_is_finite_and_never_increases_with_kappa(dim: int) -> None:
    kappa = torch.logspace(-3, 4, 4001, dtype=torch.float64)
    value = vmf_log_normalizer(kappa, dim)
    assert isinstance(value, Tensor)
    assert torch.isfinite(value).all()
    allowed = TOLERANCE * value[1:].abs().clamp_min(1.0)
    assert (value[1:] <= value[:-1] + allowed).all()


@pytest.mark.parametrize("kappa", [1e-3, 0.1, 1.0, 10.0, 100.0])
def test_log_normalizer_in_three_dimensions_is_kappa_over_4_pi_sinh_kappa(kappa: float) -> None:
    exact = math.log(kappa / (4 * math.pi * math.sinh(kappa)))
    assert VonMisesFisher(kappa).log_normalizer(3) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("kappa", [0.5, 3.0, 40.0])
def test_mean_cosine_in_three_dimensions_is_the_langevin_function(kappa: float) -> None:
    exact = 1 / math.tanh(kappa) - 1 / kappa
    assert vmf_mean_cosine(kappa, 3) == pytest.approx(exact, rel=1e-12)
    assert torch.as_tensor(vmf_mean_cosine(double(kappa), 3)).item() == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("dim", DIMS)
def test_log_normalizer_tends_to_the_uniform_density_as_kappa_vanishes(dim: int) -> None:
    assert VonMisesFisher(1e-12).log_normalizer(dim) == pytest.approx(-log_sphere_area(dim), rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("dim", [2, 3, 10, 64, 1000])
def test_log_normalizer_and_mean_cosine_pass_gradcheck_twice(dim: int) -> None:
    kappa = torch.tensor([0.3, 2.0, 25.0], dtype=torch.float64, requires_grad=True)

    def log_normalizer(x: Tensor) -> Tensor:
        return torch.as_tensor(vmf_log_normalizer(x, dim))

    def mean_cosine(x: Tensor) -> Tensor:
        return torch.as_tensor(vmf_mean_cosine(x, dim))

    assert gradcheck(log_normalizer, (kappa,))
    assert gradgradcheck(log_normalizer, (kappa,))
    assert gradcheck(mean_cosine, (kappa,))
    assert gradgradcheck(mean_cosine, (kappa,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_kappa_gives_a_float32_constant_rounded_once(dtype: torch.dtype) -> None:
    kappa = torch.tensor(10.0, dtype=dtype, requires_grad=True)  # 10 is exact in each of them
    value = VonMisesFisher(kappa).log_normalizer(1000)
    assert isinstance(value, Tensor)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact_log_normalizer(1000, 10.0), rel=1e-7)
    (gradient,) = torch.autograd.grad(value, kappa)
    assert gradient.item() == pytest.approx(-exact_mean_cosine(1000, 10.0), rel=torch.finfo(dtype).eps)


def test_log_sphere_area_of_known_spheres() -> None:
    assert log_sphere_area(1) == pytest.approx(math.log(2))  # two points
    assert log_sphere_area(2) == pytest.approx(math.log(2 * math.pi))
    assert log_sphere_area(3) == pytest.approx(math.log(4 * math.pi))
    assert log_sphere_area(4) == pytest.approx(math.log(2 * math.pi**2))
    assert log_sphere_area(1000) == pytest.approx(-2032.06, abs=0.005)


@pytest.mark.parametrize("dim", DIMS)
def test_log_sphere_area_matches_50_digit_arithmetic(dim: int) -> None:
    with mpmath.workdps(50):
        half = mpmath.mpf(dim) / 2
        exact = float(mpmath.log(2) + half * mpmath.log(mpmath.pi) - mpmath.loggamma(half))
    assert log_sphere_area(dim) == pytest.approx(exact, rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("dim", [3, 10, 128, 1000, 2048])
def test_joe_measures_the_area_of_the_sphere_from_1000_uniform_points(dim: int) -> None:
    entropy = kde_entropy(uniform_on_sphere(1000, dim), VonMisesFisher(10.0), "joe", leave_one_out=True)
    assert abs(entropy.item() - log_sphere_area(dim)) < 0.1


def test_published_constant_would_print_minus_249_for_the_same_points() -> None:
    kappa, dim = 10.0, 1000
    points = uniform_on_sphere(1000, dim)
    nu = dim / 2 - 1
    published_log_c = (
        nu * math.log(kappa) - dim / 2 * math.log(2 * math.pi) - math.log(scipy.special.iv(nu, kappa) + 1e-7)  # iv is 0 here
    )
    # The published check keeps the self term, as the paper does.
    log_density = torch.logsumexp(kappa * points @ points.T, dim=1) - math.log(1000) + published_log_c
    assert -log_density.mean().item() == pytest.approx(-249.3, abs=0.5)
    assert log_sphere_area(dim) == pytest.approx(-2032.06, abs=0.005)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_to_sphere_gives_unit_rows_at_any_scale(scale: float) -> None:
    z = torch.randn(5, 7, dtype=torch.float64)
    directions = to_sphere(scale * z)
    torch.testing.assert_close(directions, z / z.norm(dim=1, keepdim=True), rtol=1e-14, atol=1e-15)


def test_to_sphere_has_the_gradient_of_plain_division_by_the_norm() -> None:
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 3, dtype=torch.float64)
    (ours,) = torch.autograd.grad((weights * to_sphere(z)).sum(), z)
    (plain,) = torch.autograd.grad((weights * z / z.norm(dim=1, keepdim=True)).sum(), z)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-13)
    assert gradcheck(to_sphere, (z,))
    assert gradgradcheck(to_sphere, (z,))


def test_to_sphere_leaves_a_zero_row_zero_with_a_finite_gradient() -> None:
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    directions = to_sphere(z)
    torch.testing.assert_close(directions, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    (gradient,) = torch.autograd.grad(directions.sum(), z)
    assert torch.isfinite(gradient).all()
