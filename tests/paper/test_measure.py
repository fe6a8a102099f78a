import math

import pytest
import torch

from entrec.paper.convergence.measure import Measured, bias_slope, generator, measure, variance_slope


def _points(exponent: float, noise: float = 0.0) -> list[Measured]:
    return [
        Measured(x, -3 * x**exponent * (1 + noise), abs(0.01 * x**exponent), x**exponent, 0.01 * x**exponent, 10)
        for x in (1.0, 2.0, 8.0)
    ]


@pytest.mark.parametrize("exponent", [-2.0, -1.0, 0.5, 4.0])
def test_a_power_law_is_fitted_exactly(exponent: float) -> None:
    assert bias_slope(_points(exponent)).exponent == pytest.approx(exponent, abs=1e-12)
    assert variance_slope(_points(exponent)).exponent == pytest.approx(exponent, abs=1e-12)


def test_the_slopes_standard_error_is_that_of_repeated_fits() -> None:
    x = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    slopes = []
    for _ in range(400):
        y = x**-1 * (1 + 0.05 * torch.randn(4, dtype=torch.float64))
        slope = bias_slope([Measured(float(a), float(b), 0.05 * float(b), 1.0, 1.0, 10) for a, b in zip(x, y, strict=True)])
        slopes.append(slope.exponent)
    assert slope.se == pytest.approx(float(torch.tensor(slopes).std()), rel=0.15)


def test_bias_and_variance_of_known_draws() -> None:
    stream = torch.Generator().manual_seed(0)

    def draw() -> tuple[float, float]:
        value = 2 + 3 * float(torch.randn((), generator=stream))
        return value, value - 1.5

    point = measure(draw, 7, 4000)
    assert abs(point.bias - 0.5) < 4 * point.bias_se
    assert point.bias_se == pytest.approx(3 / math.sqrt(4000), rel=0.05)
    assert abs(point.variance - 9) < 4 * point.variance_se
    assert point.variance_se == pytest.approx(9 * math.sqrt(2 / 4000), rel=0.1)
    assert point.rmse == pytest.approx(math.sqrt(point.bias**2 + point.variance))


def test_streams_are_their_names_own() -> None:
    draws = {name: torch.rand(3, generator=generator(0, name, "cpu")).tolist() for name in ("a", "b")}
    assert draws["a"] != draws["b"]
    assert draws["a"] == torch.rand(3, generator=generator(0, "a", "cpu")).tolist()
    assert draws["a"] != torch.rand(3, generator=generator(1, "a", "cpu")).tolist()
