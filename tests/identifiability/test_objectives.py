import math

import numpy as np
import pytest
import torch
from torch import Tensor

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher, er_bound
from entrec.identifiability import Latents, Sphere, er_loss, infonce_loss
from entrec.identifiability.laws import Law
from entrec.pairwise.similarity import to_sphere

DENSITIES: list[Law] = [VonMisesFisher(2.0), Gaussian(math.sqrt(0.5)), Laplace(0.7), GeneralizedNormal(3.0, 1.0)]
K, D = 7, 3


def views(density: Law) -> tuple[Tensor, Tensor]:
    z1 = torch.randn(K, D, dtype=torch.float64)
    z2 = z1 + 0.3 * torch.randn(K, D, dtype=torch.float64)
    return (to_sphere(z1), to_sphere(z2)) if density.on_sphere else (z1, z2)


def log_q(density: Law, z: Tensor, given: Tensor) -> float:
    """Written out, one pair at a time, without the constant."""
    a: list[float] = z.tolist()
    b: list[float] = given.tolist()
    if isinstance(density, VonMisesFisher):
        return float(density.kappa) * math.fsum(x * y for x, y in zip(a, b, strict=True))
    if isinstance(density, Gaussian):
        return -math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (2 * float(density.sigma) ** 2)
    p = 1.0 if isinstance(density, Laplace) else float(density.beta)
    scale = float(density.scale)
    return -math.fsum(math.pow(abs(x - y) / scale, p) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("density", DENSITIES)
def test_infonce_is_what_the_reference_loops_compute(density: Law) -> None:
    z1, z2 = views(density)
    losses = []
    for i in range(K):
        positive = math.exp(log_q(density, z2[i], z1[i]))
        negatives = sum(math.exp(log_q(density, z1[j], z1[i])) for j in range(K))
        losses.append(-math.log(positive / (positive + negatives)))
    assert float(infonce_loss(z1, z2, density)) == pytest.approx(np.mean(losses), rel=1e-10)


@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("density", DENSITIES)
def test_er_is_minus_the_bound_and_what_loops_compute(density: Law, bandwidth: float) -> None:
    """With q_h in both terms, as the paper's tables have it."""
    z1, z2 = views(density)
    q = density.with_bandwidth(bandwidth)
    entropy = -np.mean([math.log(np.mean([math.exp(log_q(q, a, b)) for b in z2])) for a in z2])
    reconstruction = np.mean([log_q(q, b, a) for a, b in zip(z1, z2, strict=True)])
    loss = float(er_loss(z1, z2, density, bandwidth))
    assert loss == pytest.approx(-(entropy + reconstruction), rel=1e-9)
    assert loss == pytest.approx(-float(er_bound(z1, z2, q, q).value), rel=1e-9)


@pytest.mark.parametrize("density", DENSITIES)
def test_the_entropy_may_have_a_kernel_of_its_own(density: Law) -> None:
    z1, z2 = views(density)
    q, kernel = density.with_bandwidth(2.0), density.with_bandwidth(0.3)
    bound = float(er_bound(z1, z2, q, kernel).value)
    assert float(er_loss(z1, z2, density, 2.0, kernel=0.3)) == pytest.approx(-bound, rel=1e-9)
    same = er_loss(z1, z2, density, 2.0, kernel=2.0)
    torch.testing.assert_close(same, er_loss(z1, z2, density, 2.0))


def test_a_wide_kernel_in_the_entropy_alone_would_reward_one_point() -> None:
    """Why h is in both terms: the true latents of the first row of the tables against all projections at one point."""
    latents = Latents(Sphere(10), None, VonMisesFisher(1.0))
    z1, z2 = latents.pairs(2000, torch.Generator().manual_seed(0))
    q, kernel, point = VonMisesFisher(1.0), VonMisesFisher(0.1), z1[:1].expand(2000, 10)
    assert er_bound(point, point, q, kernel).value > er_bound(z1, z2, q, kernel).value + 0.5
    for h in (1.0, 10.0):
        assert er_loss(point, point, q, h) > er_loss(z1, z2, q, h)


@pytest.mark.parametrize("density", DENSITIES)
def test_infonce_is_er_at_bandwidth_one_but_for_the_positive_in_the_denominator(density: Law) -> None:
    z1, z2 = views(density)
    positives = torch.tensor([log_q(density, b, a) for a, b in zip(z1, z2, strict=True)])
    negatives = torch.tensor([[log_q(density, a, b) for a in z1] for b in z1]).logsumexp(dim=1)
    differs = torch.log1p((positives - negatives).exp()).mean() + math.log(K)
    # The densities are symmetric, so the bound's target can be z1, whose entropy the negatives are.
    assert float(infonce_loss(z1, z2, density)) == pytest.approx(float(er_loss(z2, z1, density, 1.0) + differs), rel=1e-6)


@pytest.mark.parametrize("density", DENSITIES)
def test_gradients_are_right(density: Law) -> None:
    z1, z2 = (z.clone().requires_grad_() for z in views(density))
    assert torch.autograd.gradcheck(lambda a, b: infonce_loss(a, b, density), (z1, z2))
    assert torch.autograd.gradcheck(lambda a, b: er_loss(a, b, density, 2.0), (z1, z2))


@pytest.mark.parametrize("density", DENSITIES[1:])
def test_in_flat_spaces_only_differences_count(density: Law) -> None:
    z1, z2 = views(density)
    torch.testing.assert_close(infonce_loss(z1 + 5, z2 + 5, density), infonce_loss(z1, z2, density))
    torch.testing.assert_close(er_loss(z1 + 5, z2 + 5, density, 1.0), er_loss(z1, z2, density, 1.0))


def test_on_the_sphere_only_angles_between_count() -> None:
    density = DENSITIES[0]
    z1, z2 = views(density)
    turn = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64)).Q
    torch.testing.assert_close(infonce_loss(z1 @ turn, z2 @ turn, density), infonce_loss(z1, z2, density))
    torch.testing.assert_close(er_loss(z1 @ turn, z2 @ turn, density, 1.0), er_loss(z1, z2, density, 1.0))
