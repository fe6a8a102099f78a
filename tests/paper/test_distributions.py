import math

import pytest
import torch
from scipy.integrate import quad

from entrec import kde_entropy
from entrec.paper.convergence.distributions import (
    VMF,
    Distribution,
    StandardGaussian,
    UniformSphere,
    smoothing_bias,
    uniform_sphere_bias,
)

DISTRIBUTIONS: list[Distribution] = [UniformSphere(3), VMF(3, 10.0), VMF(10, 4.0), StandardGaussian(1), StandardGaussian(5)]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: d.name)
def test_entropy_is_the_mean_of_minus_log_p(distribution: Distribution) -> None:
    surprise = -distribution.log_prob(distribution.sample(20_000, torch.Generator().manual_seed(0)))
    error = max(float(surprise.std()), 1e-4) / math.sqrt(20_000)
    assert abs(float(surprise.mean()) - distribution.entropy) < 4 * error


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: d.name)
def test_plugin_limit_is_the_density_weighted_mean_of_minus_log_p(distribution: Distribution) -> None:
    log_p = distribution.log_prob(distribution.sample(100_000, torch.Generator().manual_seed(0))).double()
    weighted = -(log_p.exp() * log_p).mean() / log_p.exp().mean()
    assert float(weighted) == pytest.approx(distribution.plugin_limit, abs=0.03)


@pytest.mark.parametrize("h", [0.2, 1.0, 2.0])
def test_smoothing_bias_is_a_kl_divergence(h: float) -> None:
    variance = 1 + h * h

    def integrand(z: float) -> float:
        log_p = -0.5 * z * z - 0.5 * math.log(2 * math.pi)
        log_smooth = -0.5 * z * z / variance - 0.5 * math.log(2 * math.pi * variance)
        return math.exp(log_p) * (log_p - log_smooth)

    assert smoothing_bias(3, h) == pytest.approx(3 * quad(integrand, -12, 12)[0], rel=1e-8)


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_bias_on_the_uniform_sphere_is_that_of_the_estimator(leave_one_out: bool) -> None:
    sphere, k, width = UniformSphere(3), 400, 0.25
    stream = torch.Generator().manual_seed(0)
    biases = torch.stack(
        [kde_entropy(sphere.sample(k, stream), sphere.kernel(width), leave_one_out=leave_one_out) for _ in range(300)]
    )
    error = float(biases.std()) / math.sqrt(300)
    predicted = uniform_sphere_bias(3, width, k, leave_one_out)
    assert abs(float(biases.mean()) - sphere.entropy - predicted) < 4 * error + 0.05 * abs(predicted)
