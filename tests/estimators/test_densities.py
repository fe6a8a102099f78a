import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.autograd import gradcheck

from entrec import Density, Gaussian, GeneralizedNormal, Laplace, VonMisesFisher, er_bound, infonce_bound, kde_entropy
from entrec.losses import ERLoss
from entrec.pairwise import Similarity

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal

EVERY_FAMILY: list[Family] = [VonMisesFisher(3.0), Gaussian(0.7), Laplace(0.4), GeneralizedNormal(1.5, 0.8)]
SCALED: dict[str, Callable[[float], Family]] = {
    "gaussian": lambda c: Gaussian(0.7 * c),
    "laplace": lambda c: Laplace(0.4 * c),
    "generalized_normal": lambda c: GeneralizedNormal(1.5, 0.8 * c),
    "generalized_normal_of_beta_2": lambda c: GeneralizedNormal(2.0, 0.8 * c),
}


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def parameter(value: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(value, dtype=dtype, requires_grad=True)


def with_tensors(density: Family, dtype: torch.dtype = torch.float64) -> tuple[Family, tuple[Tensor, ...]]:
    values = tuple(parameter(float(value), dtype) for value in vars(density).values())
    return type(density)(*values), values


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_gaussian_is_scipys_normal(dim: int) -> None:
    z, given = torch.randn(2, 6, dim, dtype=torch.float64)
    exact = scipy.stats.norm.logpdf(z, loc=given, scale=0.7).sum(axis=1)
    torch.testing.assert_close(Gaussian(0.7).log_prob(z, given), torch.from_numpy(exact))
    assert Gaussian(0.7).entropy(dim) == pytest.approx(dim * scipy.stats.norm(scale=0.7).entropy())


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_laplace_is_scipys_laplace(dim: int) -> None:
    z, given = torch.randn(2, 6, dim, dtype=torch.float64)
    exact = scipy.stats.laplace.logpdf(z, loc=given, scale=0.4).sum(axis=1)
    torch.testing.assert_close(Laplace(0.4).log_prob(z, given), torch.from_numpy(exact))
    assert Laplace(0.4).entropy(dim) == pytest.approx(dim * scipy.stats.laplace(scale=0.4).entropy())


@pytest.mark.parametrize("beta", [0.3, 0.7, 1.0, 1.5, 2.0, 3.0, 8.0])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_generalized_normal_is_scipys_gennorm(dim: int, beta: float) -> None:
    z, given = torch.randn(2, 6, dim, dtype=torch.float64)
    exact = scipy.stats.gennorm.logpdf(z, beta, loc=given, scale=0.8).sum(axis=1)
    density = GeneralizedNormal(beta, 0.8)
    torch.testing.assert_close(density.log_prob(z, given), torch.from_numpy(exact))
    assert density.entropy(dim) == pytest.approx(dim * scipy.stats.gennorm(beta, scale=0.8).entropy())


@pytest.mark.parametrize("kappa", [0.1, 1.0, 10.0, 300.0])
@pytest.mark.parametrize("dim", [2, 3, 10, 50])
def test_von_mises_fisher_is_scipys(dim: int, kappa: float) -> None:
    z, given = torch.nn.functional.normalize(torch.randn(2, 6, dim, dtype=torch.float64), dim=-1)
    exact = [scipy.stats.vonmises_fisher.logpdf(x.numpy(), mean.numpy(), kappa) for x, mean in zip(z, given, strict=True)]
    density = VonMisesFisher(kappa)
    torch.testing.assert_close(density.log_prob(z, given), torch.tensor(np.array(exact)).reshape(-1), rtol=1e-10, atol=1e-10)
    assert density.entropy(dim) == pytest.approx(scipy.stats.vonmises_fisher(np.eye(dim)[0], kappa).entropy(), abs=1e-9)


def test_on_the_sphere_only_directions_count() -> None:
    z, given = torch.randn(2, 6, 4, dtype=torch.float64)
    lengths = torch.logspace(-30, 30, 6, dtype=torch.float64)[:, None]
    density = VonMisesFisher(5.0)
    torch.testing.assert_close(density.log_prob(lengths * z, given / lengths), density.log_prob(z, given))


def test_generalized_normal_of_beta_1_is_laplace_and_of_beta_2_gaussian() -> None:
    z, given = torch.randn(2, 40, 5)  # float32, and enough points for any fast path of a distance matrix
    for general, special in (
        (GeneralizedNormal(1.0, 0.4), Laplace(0.4)),
        (GeneralizedNormal(2.0, 0.7 * math.sqrt(2)), Gaussian(0.7)),
    ):
        torch.testing.assert_close(general.log_prob(z, given), special.log_prob(z, given))
        torch.testing.assert_close(kde_entropy(z, general), kde_entropy(z, special))
        assert general.log_normalizer(5) == pytest.approx(special.log_normalizer(5))
        assert general.entropy(5) == pytest.approx(special.entropy(5))


def test_bandwidth_divides_kappa_and_multiplies_every_other_scale() -> None:
    assert VonMisesFisher(1.0).with_bandwidth(0.1) == VonMisesFisher(10.0)
    assert Gaussian(2.0).with_bandwidth(0.25) == Gaussian(0.5)
    assert Laplace(2.0).with_bandwidth(0.25) == Laplace(0.5)
    assert GeneralizedNormal(1.5, 2.0).with_bandwidth(0.25) == GeneralizedNormal(1.5, 0.5)


@pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
def test_bandwidth_may_be_learnt(density: Family) -> None:
    h = parameter(0.5)
    points, given = doubles(4, 3), doubles(4, 3)
    assert gradcheck(lambda width: density.with_bandwidth(width).log_prob(points, given), (h,))
    exact = density.with_bandwidth(0.5).log_prob(points, given)
    torch.testing.assert_close(density.with_bandwidth(h).log_prob(points, given), exact)


@pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
def test_parameters_may_be_numbers_or_tensors_with_the_same_values(density: Family) -> None:
    z, given = torch.randn(2, 6, 4, dtype=torch.float64)
    learnt, _ = with_tensors(density)
    torch.testing.assert_close(learnt.log_prob(z, given), density.log_prob(z, given))
    for of_tensor, of_float in (
        (learnt.log_normalizer(4), density.log_normalizer(4)),
        (learnt.entropy(4), density.entropy(4)),
    ):
        assert isinstance(of_tensor, Tensor)
        assert isinstance(of_float, float)
        assert of_tensor.item() == pytest.approx(of_float, rel=1e-12)


@pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
def test_log_prob_passes_gradcheck_in_points_and_parameters(density: Family) -> None:
    _, values = with_tensors(density)

    def log_prob(z: Tensor, given: Tensor, *parameters: Tensor) -> Tensor:
        return type(density)(*parameters).log_prob(z, given)

    assert gradcheck(log_prob, (doubles(4, 3), doubles(4, 3), *values))


@pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
def test_constant_and_entropy_pass_gradcheck_in_their_parameters(density: Family) -> None:
    _, values = with_tensors(density)

    def log_normalizer(*parameters: Tensor) -> Tensor:
        return torch.as_tensor(type(density)(*parameters).log_normalizer(7))

    def entropy(*parameters: Tensor) -> Tensor:
        return torch.as_tensor(type(density)(*parameters).entropy(7))

    assert gradcheck(log_normalizer, values)
    assert gradcheck(entropy, values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
def test_half_precision_points_give_float32_values_and_finite_gradients(density: Family, dtype: torch.dtype) -> None:
    z, given = (torch.randn(6, 4, dtype=dtype, requires_grad=True) for _ in range(2))
    value = density.log_prob(z, given)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), density.log_prob(z.double(), given.double()), rtol=1e-5, atol=1e-5)
    exact = torch.autograd.grad(density.log_prob(z.double(), given.double()).sum(), (z, given))
    for gradient, true in zip(torch.autograd.grad(value.sum(), (z, given)), exact, strict=True):
        assert torch.isfinite(gradient).all()
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(gradient.double(), true.double(), rtol=4 * eps, atol=4 * eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("density", EVERY_FAMILY, ids=repr)
def test_half_precision_parameters_give_float32_constants(density: Family, dtype: torch.dtype) -> None:
    learnt, values = with_tensors(density, dtype)
    same = type(density)(*(value.item() for value in values))
    for of_half, of_float in ((learnt.log_normalizer(100), same.log_normalizer(100)), (learnt.entropy(100), same.entropy(100))):
        assert isinstance(of_half, Tensor)
        assert of_half.dtype == torch.float32
        assert of_half.item() == pytest.approx(of_float, rel=1e-5)


def test_half_precision_parameters_do_not_overflow_inside() -> None:
    z, given = torch.randn(2, 6, 4)
    sigma = torch.tensor(2.0**-9, dtype=torch.float16)  # exact in half precision; 1 / sigma^2 is beyond it
    torch.testing.assert_close(Gaussian(sigma).log_prob(z, given), Gaussian(2.0**-9).log_prob(z, given))


@pytest.mark.parametrize("power", [-30, -15, 15, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", SCALED)
def test_scaling_space_and_density_together_moves_the_log_density_by_the_volume(
    family: str, dtype: torch.dtype, power: int
) -> None:
    z, given = torch.randn(2, 6, 4, dtype=dtype)
    c = 10.0**power
    exact = SCALED[family](1.0).log_prob(z, given) - 4 * math.log(c)
    torch.testing.assert_close(SCALED[family](c).log_prob(c * z, c * given), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("beta", "scale"), [(200.0, 0.5), (50.0, 2.0), (1000.0, 0.1), (0.05, 1.0)])
def test_generalized_normal_holds_for_extreme_exponents(beta: float, scale: float) -> None:
    points = scale * torch.tensor([[0.0], [0.5], [0.99], [-1.005]])
    exact = scipy.stats.gennorm.logpdf(points.double(), beta, scale=scale)[:, 0]
    value = GeneralizedNormal(beta, scale).log_prob(points, torch.zeros(4, 1))
    torch.testing.assert_close(value.double(), torch.from_numpy(exact), rtol=1e-3, atol=1e-3)


@dataclass(frozen=True)
class UnitGaussian:
    on_sphere: ClassVar[bool] = False
    similarity: Similarity = "sqeuclidean"
    factor: float = 0.5
    unit: float = 1.0

    @property
    def arguments(self) -> dict[str, float | Tensor]:
        return {}

    def log_normalizer(self, dim: int) -> float:
        return -dim / 2 * math.log(2 * math.pi)


def test_a_density_of_ones_own_works_wherever_ours_do() -> None:
    own, ours = UnitGaussian(), Gaussian(1.0)
    assert isinstance(own, Density)
    z1, z2 = torch.randn(2, 6, 4, dtype=torch.float64)
    torch.testing.assert_close(kde_entropy(z1, own), kde_entropy(z1, ours))
    torch.testing.assert_close(er_bound(z1, z2, own).value, er_bound(z1, z2, ours).value)
    torch.testing.assert_close(infonce_bound(z1, z2, own), infonce_bound(z1, z2, ours))
    torch.testing.assert_close(ERLoss(own)(z1, z2), ERLoss(ours)(z1, z2))
