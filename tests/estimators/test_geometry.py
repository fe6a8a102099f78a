import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional

from entrec import Gaussian, VonMisesFisher, alignment, effective_rank, kde_entropy, reconstruction, uniformity


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def directions(k: int, d: int) -> list[list[float]]:
    rows: list[list[float]] = functional.normalize(doubles(k, d), dim=1).tolist()
    return rows


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_alignment_is_the_mean_power_of_the_distances(alpha: float) -> None:
    u, v = directions(6, 4), directions(6, 4)
    by_hand = sum(math.dist(a, b) ** alpha for a, b in zip(u, v, strict=True)) / 6
    lengths = torch.logspace(-20, 20, 6, dtype=torch.float64)[:, None]
    assert alignment(torch.tensor(u) * 3.0, torch.tensor(v), alpha).item() == pytest.approx(by_hand, rel=1e-5)
    z1, z2 = torch.tensor(u, dtype=torch.float64), torch.tensor(v, dtype=torch.float64)
    assert alignment(lengths * z1, z2 / lengths, alpha).item() == pytest.approx(by_hand)


def test_alignment_of_equal_opposite_and_orthogonal_views() -> None:
    z = doubles(5, 3)
    assert alignment(z, 7 * z).item() == pytest.approx(0.0, abs=1e-15)
    assert alignment(z, -z).item() == pytest.approx(4.0)
    assert alignment(torch.eye(4), torch.eye(4).roll(1, 0)).item() == pytest.approx(2.0)


def test_alignment_is_minus_the_reconstruction_up_to_constants() -> None:
    z1, z2 = doubles(2, 6, 4)
    density = VonMisesFisher(5.0)
    exact = 5.0 - 5.0 / 2 * alignment(z1, z2).item() + float(density.log_normalizer(4))
    assert reconstruction(z2, z1, density).item() == pytest.approx(exact)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_alignment_passes_gradcheck_and_is_finite_where_views_agree(alpha: float) -> None:
    z1, z2 = doubles(4, 3).requires_grad_(), doubles(4, 3).requires_grad_()
    assert gradcheck(lambda a, b: alignment(a, b, alpha), (z1, z2))
    (gradient,) = torch.autograd.grad(alignment(z1, z1.detach(), alpha), z1)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("t", [0.5, 2.0, 30.0])
def test_uniformity_is_the_log_of_the_mean_potential_of_different_points(t: float) -> None:
    u = directions(6, 4)
    potentials = [math.exp(-t * math.dist(u[i], u[j]) ** 2) for i in range(6) for j in range(6) if i != j]
    z = 9 * torch.tensor(u, dtype=torch.float64)
    assert uniformity(z, t).item() == pytest.approx(math.log(sum(potentials) / len(potentials)))


def test_uniformity_of_equal_and_opposite_points() -> None:
    z = doubles(1, 3)
    assert uniformity(z.expand(5, 3)).item() == pytest.approx(0.0, abs=1e-14)
    assert uniformity(torch.cat([z, -z]), t=2.0).item() == pytest.approx(-8.0)


@pytest.mark.parametrize("t", [0.5, 2.0, 10.0])
def test_joe_is_at_least_minus_uniformity_by_jensens_inequality(t: float) -> None:
    z = functional.normalize(doubles(12, 4) + 0.5, dim=1)
    gaussian, vmf = Gaussian(math.sqrt(1 / (2 * t))), VonMisesFisher(2 * t)
    slack = kde_entropy(z, gaussian, "joe", leave_one_out=True) + gaussian.log_normalizer(4) + uniformity(z, t)
    assert slack.item() > 0
    # On the sphere exp(-t |u - v|^2) is exp(2t cos - 2t): the same inequality for the other kernel.
    same = kde_entropy(z, vmf, "joe", leave_one_out=True) + vmf.log_normalizer(4) + 2 * t + uniformity(z, t)
    assert same.item() == pytest.approx(slack.item())


@pytest.mark.parametrize("t", [0.5, 2.0])
def test_jensens_inequality_is_an_equality_for_equidistant_points(t: float) -> None:
    z = torch.eye(5, dtype=torch.float64)
    gaussian = Gaussian(math.sqrt(1 / (2 * t)))
    joe = kde_entropy(z, gaussian, "joe", leave_one_out=True) + gaussian.log_normalizer(5)
    assert joe.item() == pytest.approx(-uniformity(z, t).item())


def test_uniformity_passes_gradcheck() -> None:
    assert gradcheck(lambda z: uniformity(z), (doubles(5, 3).requires_grad_(),))


def test_effective_rank_counts_orthogonal_directions_of_equal_length() -> None:
    for rank in (1, 2, 5):
        z = torch.eye(5, 8, dtype=torch.float64)[torch.arange(20) % rank]
        assert effective_rank(z).item() == pytest.approx(rank)


def test_effective_rank_of_known_singular_values() -> None:
    exact = math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    left, _ = torch.linalg.qr(doubles(6, 2))
    right, _ = torch.linalg.qr(doubles(4, 2))
    z = left @ torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)) @ right.T
    assert effective_rank(z).item() == pytest.approx(exact)


def test_collapsed_rows_have_rank_one_even_with_noise_far_below_them() -> None:
    z = torch.ones(50, 8, dtype=torch.float64) + 1e-6 * doubles(50, 8)
    assert effective_rank(z).item() == pytest.approx(1.0, abs=1e-3)


def test_effective_rank_ignores_scale_rotation_and_order_and_stays_within_its_bounds() -> None:
    z = doubles(10, 4)
    rotation, _ = torch.linalg.qr(doubles(4, 4))
    value = effective_rank(z)
    assert 1 <= value.item() <= 4
    for same in (1e30 * z, 1e-30 * z, z @ rotation, z[torch.randperm(10)]):
        torch.testing.assert_close(effective_rank(same), value)
    assert gradcheck(effective_rank, (z.requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32_values_and_gradients_within_its_precision(dtype: torch.dtype) -> None:
    z1, z2 = (torch.randn(16, 8).to(dtype).requires_grad_() for _ in range(2))
    for value, exact in (
        (alignment(z1, z2), alignment(z1.double(), z2.double())),
        (uniformity(z1), uniformity(z1.double())),
        (effective_rank(z1), effective_rank(z1.double())),
    ):
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(exact.item(), rel=1e-5)
        (gradient,), (true,) = torch.autograd.grad(value, z1), torch.autograd.grad(exact, z1)
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(gradient.double(), true.double(), rtol=4 * eps, atol=4 * eps)
