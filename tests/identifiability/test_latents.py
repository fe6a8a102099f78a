import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from entrec import Gaussian, Laplace, VonMisesFisher
from entrec.identifiability import Box, Latents, Sphere, Unbounded
from entrec.identifiability.spaces import space_named

K = 50_000
LEAST = 1e-5  # p-value


def test_a_normal_marginal_on_the_sphere_is_around_the_first_axis_and_projected() -> None:
    z = Latents(Sphere(4), Gaussian(1.0), Laplace(0.05)).sample(K, Generator().manual_seed(0))
    truth = stats.norm().rvs((K, 4), random_state=0) + np.eye(4)[0]
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    for drawn, real in zip(z.T.numpy(), truth.T, strict=True):
        assert stats.ks_2samp(drawn, real).pvalue > LEAST


def test_marginals_are_around_the_middle() -> None:
    seed = Generator().manual_seed(0)
    box = Latents(Box(2, 1.0, 3.0), Gaussian(0.1), Gaussian(0.1)).sample(K, seed)
    free = Latents(Unbounded(2), Laplace(1.0), Gaussian(1.0)).sample(K, seed)
    assert stats.kstest(box[:, 0].numpy(), stats.norm(2, 0.1).cdf).pvalue > LEAST  # truncated at 10 deviations
    assert stats.kstest(free[:, 1].numpy(), stats.laplace().cdf).pvalue > LEAST


def test_the_second_view_is_around_the_first() -> None:
    z1, z2 = Latents(Unbounded(3), Gaussian(1.0), Gaussian(0.5)).pairs(K, Generator().manual_seed(0))
    assert stats.kstest((z2 - z1).flatten().numpy(), stats.norm(0, 0.5).cdf).pvalue > LEAST


def test_densities_are_those_of_the_marginal_and_the_conditional() -> None:
    latents = Latents(Unbounded(2), Laplace(1.0), Gaussian(0.5))
    z1, z2 = latents.pairs(8, Generator().manual_seed(0))
    np.testing.assert_allclose(latents.log_marginal(z1), stats.laplace().logpdf(z1).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(latents.log_conditional(z2, z1), stats.norm(z1, 0.5).logpdf(z2).sum(axis=1), rtol=1e-4)
    even = Latents(Sphere(3), None, VonMisesFisher(2.0))
    assert even.log_marginal(even.sample(2, Generator())).exp().tolist() == pytest.approx([1 / (4 * np.pi)] * 2)


def test_impossible_latents_are_refused() -> None:
    with pytest.raises(ValueError, match="marginal uniform needs a bounded space"):
        Latents(Unbounded(3), None, Gaussian(1.0))
    with pytest.raises(ValueError, match="needs the sphere, got box"):
        Latents(Box(3), None, VonMisesFisher(1.0))
    with pytest.raises(ValueError, match="needs the sphere, got unbounded"):
        Latents(Unbounded(3), VonMisesFisher(1.0), Gaussian(1.0))


def test_impossible_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="dim must be at least 2"):
        Sphere(1)
    with pytest.raises(ValueError, match="low < high"):
        Box(2, 1.0, 1.0)
    with pytest.raises(ValueError, match="did you mean 'sphere'"):
        space_named("sfere", 3)


def test_a_generator_repeats_its_draws() -> None:
    latents = Latents(Box(3), None, Laplace(0.05))
    a, b = (torch.cat(latents.pairs(64, Generator().manual_seed(5))) for _ in range(2))
    assert torch.equal(a, b)
