import numpy as np
import pytest
import torch
from scipy import stats

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher
from entrec.identifiability.laws import Law
from entrec.identifiability.quantiles import angles, standard

CPU = torch.device("cpu")
LINES = [
    (Gaussian(0.3), stats.norm()),
    (Laplace(2.0), stats.laplace()),
    (GeneralizedNormal(3.0, 0.1), stats.gennorm(3)),
    (GeneralizedNormal(1.0, 1.0), stats.laplace()),
    (GeneralizedNormal(0.5, 1.0), stats.gennorm(0.5)),
    (GeneralizedNormal(20.0, 1.0), stats.gennorm(20)),
]


@pytest.mark.parametrize(("density", "truth"), LINES)
def test_distribution_functions_and_quantiles_are_scipys(density: Law, truth: stats.rv_continuous) -> None:
    line = standard(density, CPU)
    u = np.linspace(1e-4, 1 - 1e-4, 997)
    x = truth.ppf(u)
    np.testing.assert_allclose(line.cdf(torch.from_numpy(x)), u, atol=1e-6)
    np.testing.assert_allclose(truth.cdf(line.quantile(torch.from_numpy(u)).numpy()), u, atol=1e-6)


@pytest.mark.parametrize("density", [density for density, _ in LINES[1:]])
def test_even_the_least_and_the_largest_number_have_a_finite_quantile(density: Law) -> None:
    assert standard(density, CPU).quantile(torch.tensor([0.0, 1.0], dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("kappa", [1e-3, 1.0, 10.0, 1e5])
def test_the_angle_in_three_dimensions_has_its_closed_form(kappa: float) -> None:
    theta = torch.linspace(0, min(np.pi, 6 / kappa**0.5), 500, dtype=torch.float64)
    below = torch.special.expm1(kappa * (theta.cos() - 1)) / np.expm1(-2 * kappa)  # of cosines above that of theta
    torch.testing.assert_close(angles(kappa, 3, CPU).cdf(theta), below, atol=1e-6, rtol=0)


def test_directions_are_no_law_on_the_line() -> None:
    with pytest.raises(TypeError, match="got VonMisesFisher"):
        standard(VonMisesFisher(1.0), CPU)
