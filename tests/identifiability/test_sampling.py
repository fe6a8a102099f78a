"""Draws against scipy, by Kolmogorov-Smirnov tests with fixed seeds; densities against scipy and by integration."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Generator, Tensor

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher
from entrec.identifiability.laws import Law
from entrec.identifiability.sampling import around, log_around, log_uniform, uniform
from entrec.identifiability.spaces import Box, Space, Sphere, Unbounded
from entrec.pairwise.similarity import to_sphere

K = 50_000
LEAST = 1e-5  # p-value: of the hundred and fifty comparisons here one below 1e-3 is to be expected, one below this is not
FLAT: list[tuple[Law, Callable[[float], Any]]] = [
    (Gaussian(0.05), lambda centre: stats.norm(centre, 0.05)),
    (Laplace(0.05), lambda centre: stats.laplace(centre, 0.05)),
    (GeneralizedNormal(3.0, 0.05), lambda centre: stats.gennorm(3, centre, 0.05)),
    (Gaussian(2.0), lambda centre: stats.norm(centre, 2.0)),
    (GeneralizedNormal(0.25, 0.05), lambda centre: stats.gennorm(0.25, centre, 0.05)),  # the ends of what words may ask for
    (GeneralizedNormal(100.0, 0.5), lambda centre: stats.gennorm(100, centre, 0.5)),
    (Gaussian(1e6), lambda centre: stats.norm(centre, 1e6)),
    (Laplace(1e4), lambda centre: stats.laplace(centre, 1e4)),
]
CENTRES = torch.tensor([0.02, 0.5, 0.93])


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def fits(drawn: Tensor, cdf: Callable[[Any], Any]) -> None:
    assert stats.kstest(drawn.double().numpy(), cdf).pvalue > LEAST


def truncated_cdf(x: Any, whole: Any) -> Any:
    """Of a law on the line that is cut to the unit interval."""
    return (whole.cdf(x) - whole.cdf(0)) / (whole.cdf(1) - whole.cdf(0))


def fit_each_other(drawn: Tensor, truth: Any) -> None:
    assert stats.ks_2samp(drawn.double().numpy(), truth).pvalue > LEAST


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_uniform_on_the_sphere_has_coordinates_that_are_betas(dim: int) -> None:
    z = uniform(K, Sphere(dim), generator())
    torch.testing.assert_close(z.norm(dim=1), torch.ones(K))
    for coordinate in z.T:
        fits((coordinate + 1) / 2, stats.beta((dim - 1) / 2, (dim - 1) / 2).cdf)


def test_uniform_on_a_box() -> None:
    for coordinate in uniform(K, Box(3, -1.0, 2.0), generator()).T:
        fits(coordinate, stats.uniform(-1, 3).cdf)


@pytest.mark.parametrize(("law", "truth"), FLAT)
def test_laws_on_the_box_are_truncated(law: Law, truth: Callable[[float], Any]) -> None:
    z = around(CENTRES.expand(K, 3), law, Box(3), generator())
    assert z.min() >= 0
    assert z.max() <= 1
    for coordinate, centre in zip(z.T, CENTRES, strict=True):
        fits(coordinate, partial(truncated_cdf, whole=truth(float(centre))))


@pytest.mark.parametrize(("law", "truth"), FLAT)
def test_laws_on_an_unbounded_space_are_themselves(law: Law, truth: Callable[[float], Any]) -> None:
    z = around(CENTRES.expand(K, 3), law, Unbounded(3), generator())
    for coordinate, centre in zip(z.T, CENTRES, strict=True):
        fits(coordinate, truth(float(centre)).cdf)


def test_coordinates_are_independent_of_each_other() -> None:
    z = around(CENTRES.expand(K, 3), Laplace(0.05), Box(3), generator())
    assert np.abs(np.corrcoef(z.T.numpy()) - np.eye(3)).max() < 4 / K**0.5


@pytest.mark.parametrize("law", [Gaussian(1e6), Laplace(1e6), GeneralizedNormal(3.0, 1e6)])
def test_a_law_much_wider_than_its_box_is_uniform_there(law: Law) -> None:
    fits(around(torch.full((K, 1), 0.3), law, Box(1), generator())[:, 0], stats.uniform().cdf)


@pytest.mark.parametrize("law", [Gaussian(1e-7), Laplace(1e-7), GeneralizedNormal(3.0, 1e-7)])
def test_a_law_much_narrower_than_its_box_stays_with_its_centre(law: Law) -> None:
    centres = uniform(K, Box(3), generator())
    torch.testing.assert_close(around(centres, law, Box(3), generator(1)), centres, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dim", [3, 10])
@pytest.mark.parametrize("kappa", [0.01, 1.0, 10.0, 1e4])
def test_von_mises_fisher_has_the_bessel_ratio_as_its_mean_cosine(dim: int, kappa: float) -> None:
    centres = uniform(K, Sphere(dim), generator())
    z = around(centres, VonMisesFisher(kappa), Sphere(dim), generator(1))
    torch.testing.assert_close(z.norm(dim=1), torch.ones(K))
    cosines = (z.double() * centres.double()).sum(dim=1).numpy()
    expected = special.ive(dim / 2, kappa) / special.ive(dim / 2 - 1, kappa)
    assert abs(cosines.mean() - expected) < 4 * cosines.std() / K**0.5


@pytest.mark.parametrize("kappa", [0.01, 1.0, 10.0, 1e3])
def test_von_mises_fisher_in_three_dimensions_has_its_closed_form(kappa: float) -> None:
    axis = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64).expand(K, 3)
    z = around(axis, VonMisesFisher(kappa), Sphere(3), generator())
    fits(z[:, 2], lambda w: (np.exp(kappa * (w - 1)) - np.exp(-2 * kappa)) / -np.expm1(-2 * kappa))
    fits(torch.atan2(z[:, 0], z[:, 1]), stats.uniform(-np.pi, 2 * np.pi).cdf)  # and is even around its mean


def test_von_mises_fisher_on_a_circle_is_von_mises() -> None:
    z = around(torch.tensor([[1.0, 0.0]]).expand(K, 2), VonMisesFisher(2.0), Sphere(2), generator())
    fits(torch.atan2(z[:, 1], z[:, 0]), stats.vonmises(2.0).cdf)


def test_von_mises_fisher_in_ten_dimensions_draws_as_scipy_does() -> None:
    centre = to_sphere(torch.arange(10.0) - 3)
    z = around(centre.expand(K, 10), VonMisesFisher(10.0), Sphere(10), generator())
    truth = stats.vonmises_fisher(centre.double().numpy(), 10).rvs(K, random_state=0)
    for place in (0, 5, 9):
        fit_each_other(z[:, place], truth[:, place])


@pytest.mark.parametrize(
    ("law", "noise"),
    [
        (Gaussian(0.3), stats.norm(0, 0.3)),
        (Laplace(0.3), stats.laplace(0, 0.3)),
        (GeneralizedNormal(3.0, 0.3), stats.gennorm(3, 0, 0.3)),
    ],
)
def test_other_laws_on_the_sphere_are_projected(law: Law, noise: Any) -> None:
    centre = np.array([0.6, 0.0, 0.8])
    z = around(torch.from_numpy(centre).float().expand(K, 3), law, Sphere(3), generator())
    truth = centre + noise.rvs((K, 3), random_state=1)
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    for drawn, real in zip((*z.T, z @ torch.from_numpy(centre).float()), (*truth.T, truth @ centre), strict=True):
        fit_each_other(drawn, real)


@pytest.mark.parametrize(("law", "truth"), FLAT)
def test_densities_on_the_box_and_beyond_are_scipys(law: Law, truth: Callable[[float], Any]) -> None:
    z = torch.rand(50, 3, dtype=torch.float64)
    centres = CENTRES.double().expand(50, 3)
    whole = [truth(float(centre)) for centre in centres[0]]
    free = sum(w.logpdf(z[:, i].numpy()) for i, w in enumerate(whole))
    inside = sum(np.log(w.cdf(1) - w.cdf(0)) for w in whole)
    np.testing.assert_allclose(log_around(z, centres, law, Unbounded(3)), free, rtol=1e-9)
    np.testing.assert_allclose(log_around(z, centres, law, Box(3)), free - inside, atol=1e-5)
    z[0, 1], z[1, 0] = 1.01, -0.01
    assert log_around(z, centres, law, Box(3))[:2].tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize(("law", "_"), FLAT)
def test_densities_on_the_box_integrate_to_one(law: Law, _: Any) -> None:
    def density(x: float) -> float:
        point = torch.tensor([[x]], dtype=torch.float64)
        return float(log_around(point, torch.full_like(point, 0.02), law, Box(1)).exp())

    assert integrate.quad(density, 0, 1, points=[0.02, 0.2])[0] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dim", [3, 10])
def test_von_mises_fisher_has_scipys_density(dim: int) -> None:
    centre = to_sphere(torch.arange(1.0, dim + 1, dtype=torch.float64))
    z = to_sphere(torch.randn(50, dim, dtype=torch.float64))
    found = log_around(z, centre.expand(50, dim), VonMisesFisher(7.0), Sphere(dim))
    np.testing.assert_allclose(found, stats.vonmises_fisher(centre.numpy(), 7).logpdf(z.numpy()), rtol=1e-9)


def test_uniform_densities_are_one_over_the_volume() -> None:
    z = torch.tensor([[0.6, 0.8, 0.0], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(log_uniform(z, Sphere(3)).exp(), torch.full((2,), 1 / (4 * np.pi)))
    assert log_uniform(z, Box(3, 0.0, 2.0)).exp().tolist() == pytest.approx([1 / 8, 1 / 8])
    assert log_uniform(z - 0.1, Box(3)).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("law", [Gaussian(0.05), Laplace(0.05), GeneralizedNormal(3.0, 0.05)])
def test_a_projected_law_says_that_it_has_no_density(law: Law) -> None:
    z = uniform(4, Sphere(3), generator())
    with pytest.raises(ValueError, match="projected onto the sphere can be drawn from, and has no density"):
        log_around(z, z, law, Sphere(3))


@pytest.mark.parametrize("space", [Box(3), Unbounded(3)])
def test_directions_need_the_sphere(space: Space) -> None:
    z = torch.rand(4, 3)
    with pytest.raises(ValueError, match="needs the sphere"):
        around(z, VonMisesFisher(1.0), space, generator())
    with pytest.raises(ValueError, match="needs the sphere"):
        log_around(z, z, VonMisesFisher(1.0), space)


def test_nothing_is_uniform_on_an_unbounded_space() -> None:
    with pytest.raises(ValueError, match="nothing is uniform on an unbounded space"):
        uniform(4, Unbounded(3), generator())
    with pytest.raises(ValueError, match="nothing is uniform on an unbounded space"):
        log_uniform(torch.rand(4, 3), Unbounded(3))
