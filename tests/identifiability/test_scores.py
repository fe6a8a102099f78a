from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from torch import Tensor

from entrec.identifiability import mcc, nonlinear_r2, r2

K, N = 500, 4


@pytest.fixture
def latents() -> Tensor:
    return torch.rand(K, N)


@pytest.fixture
def found(latents: Tensor) -> Tensor:
    return latents.flip(1) ** 2 + 0.3 * torch.randn(K, N) + 0.2 * latents


def test_r2_is_scikit_learns_and_that_of_least_squares(latents: Tensor, found: Tensor) -> None:
    z, x = latents.double().numpy(), found.double().numpy()
    assert r2(latents, found) == pytest.approx(LinearRegression().fit(x, z).score(x, z))
    design = np.column_stack([x, np.ones(K)])
    residual = z - design @ np.linalg.lstsq(design, z, rcond=None)[0]
    assert r2(latents, found) == pytest.approx(np.mean(1 - residual.var(axis=0) / z.var(axis=0)))
    assert 0.05 < r2(latents, found) < 0.95


def test_mcc_is_the_best_over_all_orders(latents: Tensor, found: Tensor) -> None:
    correlations = np.abs(np.corrcoef(latents.double().T, found.double().T)[:N, N:])
    best = max(np.mean([correlations[i, j] for i, j in enumerate(order)]) for order in permutations(range(N)))
    assert mcc(latents, found) == pytest.approx(best)
    assert 0.05 < best < 0.95


def test_the_identity_scores_one_hundred_percent(latents: Tensor) -> None:
    assert 100 * r2(latents, latents) == pytest.approx(100)
    assert 100 * mcc(latents, latents) == pytest.approx(100)
    assert nonlinear_r2(latents, latents) > 0.99


def test_r2_does_not_see_affine_maps(latents: Tensor, found: Tensor) -> None:
    assert r2(latents, found @ torch.randn(N, N) + 3) == pytest.approx(r2(latents, found), rel=1e-4)


def test_mcc_does_not_see_order_scale_and_sign_but_sees_a_rotation(latents: Tensor, found: Tensor) -> None:
    changed = found[:, [2, 0, 3, 1]] * torch.tensor([3.0, -0.1, -1.0, 100.0]) + torch.tensor([5.0, 0.0, -3.0, 1.0])
    assert mcc(latents, changed) == pytest.approx(mcc(latents, found), rel=1e-4)
    rotated = latents @ torch.linalg.qr(torch.randn(N, N)).Q
    assert r2(latents, rotated) == pytest.approx(1)
    assert mcc(latents, rotated) < 0.9


def test_kernel_ridge_sees_through_smooth_maps_that_a_line_does_not() -> None:
    z = 5 * torch.rand(1000, 1) - 2.5
    bent = torch.cat([torch.sin(z), torch.cos(z)], dim=1)
    assert nonlinear_r2(z, bent) > 0.99
    assert r2(z, bent) < 0.9


def test_noise_scores_next_to_nothing() -> None:
    z, noise = torch.randn(2000, 2), torch.randn(2000, 2)
    assert r2(z, noise) < 0.01
    assert mcc(z, noise) < 0.08
    assert nonlinear_r2(z, noise) < 0.02


def test_a_coordinate_that_never_changes_correlates_with_nothing(latents: Tensor) -> None:
    collapsed = latents.clone()
    collapsed[:, 0] = 1
    assert mcc(latents, collapsed) == pytest.approx((N - 1) / N, abs=0.03)
    assert np.isfinite(nonlinear_r2(latents, collapsed))


def test_rows_that_do_not_match_are_refused(latents: Tensor) -> None:
    for score in (r2, mcc, nonlinear_r2):
        with pytest.raises(ValueError, match=r"rows of the same data, got \(500, 4\) and \(499, 4\)"):
            score(latents, latents[1:])
        with pytest.raises(ValueError, match="needs more rows than that, got 5"):
            score(latents[:5], latents[:5])
    with pytest.raises(ValueError, match="a coordinate of its own, got 4 latents and 3 coordinates"):
        mcc(latents, latents[:, :3])
