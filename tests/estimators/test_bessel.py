import math

import mpmath
import pytest
import torch

from entrec.estimators.bessel import bessel_i_ratio, log_bessel_i_over_power

ORDERS = [0.0, 0.5, 1.0, 4.0, 8.5, 19.5, 20.0, 63.0, 499.0, 1023.0, 32767.0]
ARGUMENTS = [1e-3, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4]


def exact_log(order: float, x: float) -> float:
    with mpmath.workdps(50):
        return float(mpmath.log(mpmath.besseli(order, x)) - order * mpmath.log(x))


def exact_ratio(order: float, x: float) -> float:
    with mpmath.workdps(50):
        return float(mpmath.besseli(order + 1, x) / mpmath.besseli(order, x))


@pytest.mark.parametrize("x", ARGUMENTS)
@pytest.mark.parametrize("order", ORDERS)
def test_logarithm_matches_50_digit_arithmetic(order: float, x: float) -> None:
    exact = exact_log(order, x)
    assert abs(log_bessel_i_over_power(order, x) - exact) <= 1e-13 * max(1.0, abs(exact))


@pytest.mark.parametrize("x", ARGUMENTS)
@pytest.mark.parametrize("order", ORDERS)
def test_ratio_matches_50_digit_arithmetic(order: float, x: float) -> None:
    assert bessel_i_ratio(order, x) == pytest.approx(exact_ratio(order, x), rel=1e-13, abs=0.0)


@pytest.mark.parametrize("order", ORDERS)
def test_limit_at_zero_is_the_first_term_of_the_power_series(order: float) -> None:
    limit = -order * math.log(2) - math.lgamma(order + 1)
    assert log_bessel_i_over_power(order, 0.0) == pytest.approx(limit, rel=1e-13, abs=1e-13)
    assert bessel_i_ratio(order, 0.0) == 0.0


@pytest.mark.parametrize("x", ARGUMENTS[:-2])  # sinh overflows beyond
def test_order_one_half_is_a_hyperbolic_sine(x: float) -> None:
    exact = math.log(math.sqrt(2 / (math.pi * x)) * math.sinh(x)) - 0.5 * math.log(x)
    assert log_bessel_i_over_power(0.5, x) == pytest.approx(exact, rel=1e-12, abs=1e-12)
    assert bessel_i_ratio(0.5, x) == pytest.approx(1 / math.tanh(x) - 1 / x, rel=1e-9)


@pytest.mark.parametrize("order", [1.0, 7.5, 19.0, 20.0, 21.0, 300.0])
def test_neighbouring_orders_obey_the_recurrence(order: float) -> None:
    for x in (0.3, 5.0, 700.0):  # I_{nu-1} = (2 nu / x) I_nu + I_{nu+1}, divided by I_nu
        assert 1 / bessel_i_ratio(order - 1, x) == pytest.approx(2 * order / x + bessel_i_ratio(order, x), rel=1e-12)


def test_tensors_give_the_numbers_of_floats() -> None:
    x = torch.tensor(ARGUMENTS, dtype=torch.float64)
    for order in ORDERS:
        logs = torch.tensor([log_bessel_i_over_power(order, v) for v in ARGUMENTS], dtype=torch.float64)
        ratios = torch.tensor([bessel_i_ratio(order, v) for v in ARGUMENTS], dtype=torch.float64)
        torch.testing.assert_close(log_bessel_i_over_power(order, x), logs, rtol=1e-14, atol=1e-13)
        torch.testing.assert_close(bessel_i_ratio(order, x), ratios, rtol=1e-14, atol=0.0)
