"""The information of a code, against integrals by another rule and laws that any code must obey."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import entr
from scipy.stats import norm

from entrec.paper.grid.information import CODES, RHOS, code_information, gaussian_information, quantised, softened, table


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("codes", CODES)
def test_quantised_codes_against_adaptive_integration(rho: float, codes: int) -> None:
    edges = norm.ppf(np.linspace(0, 1, codes + 1))
    deviation = math.sqrt(1 - rho**2)

    def conditional(z1: float) -> float:
        return float(norm.pdf(z1) * entr(np.diff(norm.cdf((edges - rho * z1) / deviation))).sum())

    lost, _ = quad(conditional, -9, 9, limit=2000, epsabs=1e-9, epsrel=1e-9)
    assert code_information(rho, quantised(codes)) == pytest.approx(math.log(codes) - lost, abs=1e-7)


@pytest.mark.parametrize("rho", RHOS)
def test_softmax_codes_against_a_fine_grid_of_both_variables(rho: float) -> None:
    """The joint distribution of (Z1, W2) as a table, from the joint density of (Z1, Z2)."""
    grid = np.linspace(-8, 8, 1601)
    step = grid[1] - grid[0]
    centres = norm.ppf((np.arange(4) + 0.5) / 4)
    logits = -((grid[:, None] - centres) ** 2) / 0.5
    p_code = np.exp(logits - logits.max(axis=1, keepdims=True))
    p_code /= p_code.sum(axis=1, keepdims=True)
    density = norm.pdf(grid)[:, None] * norm.pdf(grid[None, :], rho * grid[:, None], math.sqrt(1 - rho**2))
    joint = density @ p_code * step * step
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    positive = joint > 0
    wanted = float((joint[positive] * np.log(joint[positive] / independent[positive])).sum())
    assert code_information(rho, softened(4)) == pytest.approx(wanted, abs=1e-7)


def test_the_sign_of_independent_numbers_tells_nothing_and_of_the_same_number_all() -> None:
    assert code_information(0.0, quantised(2)) == pytest.approx(0.0, abs=1e-12)
    assert code_information(0.999999, quantised(2)) == pytest.approx(math.log(2), abs=5e-3)


def test_a_code_tells_less_than_what_it_is_a_code_of_and_a_finer_one_more() -> None:
    for rho in RHOS:
        for make in (quantised, softened):
            told = [code_information(rho, make(codes)) for codes in CODES]
            assert all(0 < coarse < fine for coarse, fine in pairwise(told))
            assert told[-1] < gaussian_information(rho)
    assert len(table()) == len(RHOS) * len(CODES) * 2
    assert gaussian_information(0.6) == pytest.approx(-0.5 * math.log(0.64))
