"""The readings against closed forms and against formulas written out here, in float64 and with SciPy's Bessel function."""

import math
from dataclasses import replace
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from scipy.special import gammaln, ive, logsumexp, xlogy
from torch import Tensor

from entrec.lens import Readings, look, look_at_codes

DIMS = [2, 3, 19, 20, 64, 512]


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def units(z: Tensor) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rows = z.double().numpy()
    found: np.ndarray[tuple[int, int], np.dtype[np.float64]] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def log_constant(kappa: float, d: int) -> float:
    """Log C of the von Mises-Fisher density; ive is the Bessel function times exp(-kappa), and 0 where that underflows."""
    order = d / 2 - 1
    scaled = float(ive(order, kappa))
    log_bessel = math.log(scaled) + kappa if scaled > 1e-300 else float(mpmath.log(mpmath.besseli(order, kappa)))
    return order * math.log(kappa) - d / 2 * math.log(2 * math.pi) - log_bessel


def log_area(d: int) -> float:
    return float(np.log(2) + d / 2 * np.log(np.pi) - gammaln(d / 2))


def joe(z: Tensor, kappa: float) -> float:
    """Joe's leave-one-out entropy."""
    scores = kappa * units(z) @ units(z).T + log_constant(kappa, z.shape[1])
    np.fill_diagonal(scores, -np.inf)
    return float(-(logsumexp(scores, axis=1) - np.log(len(z) - 1)).mean())


def numbers(found: Readings) -> list[float]:
    """All that is measured, but the rank and how often the other view is nearer."""
    pairs = found.pairs
    assert pairs is not None
    assert pairs.infonce_bound is not None
    assert pairs.alignment is not None
    of_pairs = [pairs.reconstruction, pairs.er_bound, pairs.infonce_bound, pairs.alignment]
    return [found.entropy, found.filled, found.uniformity, *of_pairs]


def two_views(k: int, d: int, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    z = doubles(k, d)
    return z, z + noise * doubles(k, d)


@pytest.mark.parametrize("kappa", [1.0, 10.0, 50.0])
@pytest.mark.parametrize("d", DIMS)
def test_floor_and_ceiling_are_those_of_a_point_and_of_the_whole_sphere(d: int, kappa: float) -> None:
    found = look(doubles(4, d), kappa=kappa)
    assert found.floor == pytest.approx(-log_constant(kappa, d) - kappa, rel=1e-10, abs=1e-10)
    assert found.ceiling == pytest.approx(log_area(d), rel=1e-12, abs=1e-12)
    assert found.floor < found.ceiling
    assert (found.rows, found.dim, found.kappa, found.largest_rank) == (4, d, kappa, min(4, d))


@pytest.mark.parametrize("d", DIMS)
def test_a_constant_set_is_at_the_floor(d: int) -> None:
    z = doubles(1, d).expand(30, d)
    found = look(z, z)
    assert found.entropy == pytest.approx(found.floor, rel=1e-10, abs=1e-10)
    assert 0 <= found.filled < 1e-9
    assert found.spread == pytest.approx((0, 0, 0), abs=1e-9)
    assert found.uniformity == pytest.approx(0, abs=1e-12)
    assert found.rank == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("d", DIMS)
def test_an_even_set_is_at_the_ceiling(d: int) -> None:
    found = look(doubles(1000, d))
    assert found.filled == pytest.approx(1, abs=0.01)
    assert found.entropy == pytest.approx(found.ceiling, abs=0.03)
    low, middle, high = found.spread
    assert middle == pytest.approx(1, abs=0.05)
    assert low <= middle <= high
    assert found.pairs is None


@pytest.mark.parametrize("d", DIMS)
def test_the_scale_rises_from_0_to_1_as_points_spread_whatever_the_signs_of_the_entropies(d: int) -> None:
    noise, one = doubles(300, d), torch.eye(d, dtype=torch.float64)[0] * math.sqrt(d)
    scale = [look(one + spread * noise).filled for spread in (0.0, 0.05, 0.2, 0.6, 2.0, 20.0)]
    assert all(0 <= x <= 1 for x in scale)
    assert scale[0] == pytest.approx(0, abs=1e-9)
    assert all(lower < higher for lower, higher in pairwise(scale))
    assert scale[-1] > 0.97


def test_the_entropies_change_sign_between_18_and_19_dimensions_and_the_scale_does_not() -> None:
    assert look(doubles(500, 18)).ceiling > 0 > look(doubles(500, 19)).ceiling
    for d in (17, 18, 19, 20, 21):
        assert look(doubles(500, d)).filled == pytest.approx(1, abs=0.02)
        assert look(torch.ones(500, d)).filled == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(("k", "d", "kappa"), [(2, 2, 10.0), (3, 64, 10.0), (100, 8, 10.0), (300, 64, 1000.0)])
def test_an_estimate_beyond_the_ceiling_does_not_lead_off_the_scale(k: int, d: int, kappa: float) -> None:
    z = doubles(k, d)
    found = look(torch.cat([z[: k // 2], -z[: k - k // 2]]), kappa=kappa)
    assert found.entropy > found.ceiling
    assert found.filled == 1


@pytest.mark.parametrize("kappa", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("d", DIMS)
def test_entropy_reconstruction_and_both_bounds_are_their_formulas(d: int, kappa: float) -> None:
    z1, z2 = two_views(40, d)
    found = look(z1, z2, kappa=kappa)
    assert found.pairs is not None
    scores = kappa * units(z1) @ units(z2).T
    rec = float(np.diag(scores).mean()) + log_constant(kappa, d)
    infonce = float((np.diag(scores) - logsumexp(scores, axis=1)).mean() + np.log(40))
    assert found.entropy == pytest.approx((joe(z1, kappa) + joe(z2, kappa)) / 2, rel=1e-9, abs=1e-9)
    assert found.pairs.reconstruction == pytest.approx(rec, rel=1e-9, abs=1e-9)
    assert found.pairs.er_bound == pytest.approx(joe(z2, kappa) + rec, rel=1e-9, abs=1e-9)
    assert found.pairs.infonce_bound == pytest.approx(infonce, rel=1e-9, abs=1e-9)
    assert found.pairs.er_ceiling == pytest.approx(log_area(d) + log_constant(kappa, d) + kappa, rel=1e-9, abs=1e-9)
    assert found.pairs.infonce_ceiling == pytest.approx(math.log(40))


@pytest.mark.parametrize("d", DIMS)
def test_alignment_uniformity_rank_and_spread_are_their_formulas(d: int) -> None:
    z1, z2 = two_views(40, d)
    found = look(z1, z2)
    assert found.pairs is not None
    u, v = units(z1), units(z2)
    potentials = [np.exp(-2 * ((x[:, None] - x[None]) ** 2).sum(axis=2))[~np.eye(40, dtype=bool)] for x in (u, v)]
    share = np.linalg.svd(z1.numpy(), compute_uv=False)
    share = share / share.sum()
    deviations = np.sort(u.std(axis=0) * math.sqrt(d))
    assert found.pairs.alignment == pytest.approx(((u - v) ** 2).sum(axis=1).mean())
    assert found.uniformity == pytest.approx(np.mean([np.log(x.mean()) for x in potentials]))
    assert found.rank == pytest.approx(np.exp(-xlogy(share, share).sum()))
    assert found.spread == pytest.approx((deviations[0], deviations[(d - 1) // 2], deviations[-1]))


@pytest.mark.parametrize("d", [8, 64, 512])
def test_the_er_ceiling_is_reached_by_even_points_whose_views_agree(d: int) -> None:
    z = doubles(1000, d)
    found = look(z, 3 * z).pairs
    assert found is not None
    assert found.er_bound == pytest.approx(found.er_ceiling, rel=0.01)
    assert found.alignment == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kappa", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_infonce_cannot_pass_ln_k(noise: float, kappa: float) -> None:
    found = look(*two_views(50, 64, noise), kappa=kappa).pairs
    assert found is not None
    assert found.infonce_bound is not None
    assert found.infonce_bound <= math.log(50) + 1e-9


def test_the_other_view_is_nearer_by_chance_where_views_are_independent() -> None:
    found = [look(doubles(200, 16), doubles(200, 16)).pairs for _ in range(40)]
    share = [pairs.nearer for pairs in found if pairs is not None]
    assert len(share) == 40
    # One look is off by a third of 1 / sqrt(200), forty together by a sixth of that.
    assert np.mean(share) == pytest.approx(0.5, abs=4 * 0.33 / math.sqrt(200 * 40))
    assert all(abs(x - 0.5) < 5 * 0.33 / math.sqrt(200) for x in share)


@pytest.mark.parametrize("k", [2, 3, 7, 8, 9, 10, 64, 129])
def test_the_other_view_is_always_nearer_where_views_agree_and_ties_count_half(k: int) -> None:
    z = doubles(k, 5)
    for views, exact in (((z, z), 1.0), ((z, -z), 0.0), ((z[:1].expand(k, 5),) * 2, 0.5), ((z, z[:1].expand(k, 5)), 0.5)):
        found = look(*views).pairs
        assert found is not None
        assert found.nearer == exact


@pytest.mark.parametrize("k", [2, 5, 8, 9])
def test_few_rows_are_compared_with_all_others(k: int) -> None:
    z1, z2 = two_views(k, 4, noise=2.0)
    scores = units(z1) @ units(z2).T
    signs = [np.sign(scores[i, i] - scores[i, j]) for i in range(k) for j in range(k) if i != j]
    found = look(z1, z2).pairs
    assert found is not None
    assert found.nearer == pytest.approx(0.5 + np.mean(signs) / 2)


def test_of_two_equal_clusters_three_quarters_are_nearer() -> None:
    centres = torch.eye(2, 8, dtype=torch.float64)[torch.randint(2, (2000,))]
    found = look(centres + 0.01 * doubles(2000, 8), centres + 0.01 * doubles(2000, 8)).pairs
    assert found is not None
    assert found.nearer == pytest.approx(0.75, abs=0.03)


def test_order_and_rotation_change_nothing() -> None:
    z1, z2 = two_views(200, 12)
    found = look(z1, z2)
    rotation, _ = torch.linalg.qr(doubles(12, 12))
    order = torch.randperm(200)
    for same in (look(z1[order], z2[order]), look(z1 @ rotation, z2 @ rotation)):
        assert numbers(same) == pytest.approx(numbers(found))
        assert same.rank == pytest.approx(found.rank)
    turned = look(z1 @ rotation, z2 @ rotation).pairs
    shuffled = look(z1[order], z2[order]).pairs
    assert turned is not None
    assert shuffled is not None
    assert found.pairs is not None
    assert turned.nearer == found.pairs.nearer
    assert shuffled.nearer == pytest.approx(found.pairs.nearer, abs=0.05)  # others are compared with


def test_lengths_of_rows_change_nothing_but_the_rank() -> None:
    z1, z2 = two_views(60, 12)
    lengths = torch.logspace(-3, 3, 60, dtype=torch.float64)[:, None]
    found, other = look(z1, z2), look(lengths * z1, z2 / lengths)
    assert numbers(other) == pytest.approx(numbers(found))
    assert other.spread == pytest.approx(found.spread)
    assert other.pairs is not None
    assert found.pairs is not None
    assert other.pairs.nearer == found.pairs.nearer
    assert other.rank < found.rank - 1


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e20, 1e37])
def test_one_scale_for_all_changes_nothing_at_all_even_at_the_ends_of_float32(scale: float) -> None:
    z1, z2 = (z.float() for z in two_views(60, 12))
    found, other = look(z1, z2), look((z1.double() * scale).float(), (z2.double() * scale).float())
    assert numbers(other) == pytest.approx(numbers(found), rel=1e-4, abs=1e-5)
    assert other.rank == pytest.approx(found.rank, rel=1e-4)


@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2), (torch.float64, 1e-12)]
)
def test_types_of_numbers_agree_to_their_rounding(dtype: torch.dtype, near: float) -> None:
    z1, z2 = two_views(200, 16)
    exact, found = look(z1, z2), look(z1.to(dtype), z2.to(dtype))
    assert numbers(found) == pytest.approx(numbers(exact), rel=near, abs=near)
    assert found.rank == pytest.approx(exact.rank, rel=near)
    rounded = look(z1.to(dtype).double(), z2.to(dtype).double())
    assert numbers(found) == pytest.approx(numbers(rounded), rel=1e-5, abs=1e-5)  # only what was given is rounded


def test_two_types_of_numbers_can_be_looked_at_together() -> None:
    z1, z2 = two_views(50, 6)
    assert numbers(look(z1.float(), z2)) == pytest.approx(numbers(look(z1, z2)), rel=1e-4, abs=1e-4)


def test_looking_leaves_the_embeddings_and_their_gradients_alone() -> None:
    z1, z2 = two_views(20, 4)
    z1.requires_grad_()
    before = z1.detach().clone()
    look(z1, z2)
    assert torch.equal(z1, before)
    assert z1.grad is None


@pytest.mark.parametrize(
    ("z1", "z2", "words"),
    [
        (torch.ones(1, 4), None, "at least 2 rows to be looked at"),
        (torch.ones(4, 1), None, "at least 2 dimensions"),
        (torch.ones(4), None, "must have shape"),
        (torch.ones(4, 3), torch.ones(5, 3), "the same shape"),
        (torch.ones(4, 3), torch.zeros(4, 3), "zero vectors"),
        (torch.full((4, 3), math.nan), None, "NaN"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(z1: Tensor, z2: Tensor | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        look(z1, z2)


@pytest.mark.parametrize("kappa", [0.0, -1.0, math.inf, math.nan])
def test_a_kernel_needs_a_concentration(kappa: float) -> None:
    with pytest.raises(ValueError, match="kappa must be positive"):
        look(doubles(5, 3), kappa=kappa)


@pytest.mark.parametrize("m", [2, 21, 512, 4096])
def test_even_rows_have_ln_m_in_both_entropies(m: int) -> None:
    p = torch.full((20, m), 1 / m)
    found = look_at_codes(p, p)
    assert found.pairs is not None
    assert found.largest == math.log(m)
    assert [found.marginal, found.conditional, -found.pairs.reconstruction] == pytest.approx([math.log(m)] * 3, rel=1e-6)
    assert found.pairs.er_bound == pytest.approx(0, abs=1e-5)
    assert found.pairs.nearer == 0.5
    assert (found.rows, found.codes) == (20, m)


@pytest.mark.parametrize("m", [2, 21, 512])
def test_one_code_for_all_has_none_and_one_each_has_ln_m_and_none(m: int) -> None:
    constant = torch.eye(m)[:1].expand(3 * m, m)
    found = look_at_codes(constant, constant)
    assert found.pairs is not None
    assert (found.marginal, found.conditional, found.pairs.reconstruction, found.pairs.nearer) == (0, 0, 0, 0.5)
    even = torch.eye(m).repeat(3, 1)
    found = look_at_codes(even, even)
    assert found.pairs is not None
    assert found.marginal == pytest.approx(math.log(m))
    assert (found.conditional, found.pairs.reconstruction) == (0, 0)
    assert found.pairs.er_bound == pytest.approx(found.pairs.er_ceiling)
    assert found.pairs.er_ceiling == math.log(m)


def test_readings_of_codes_are_their_formulas() -> None:
    p1, p2 = (doubles(50, 9).mul(2).softmax(dim=1) for _ in range(2))
    found = look_at_codes(p1, p2)
    a, b = p1.numpy(), p2.numpy()
    entropies = [-xlogy(x.mean(axis=0), x.mean(axis=0)).sum() for x in (a, b)]
    own = [-xlogy(x, x).sum(axis=1).mean() for x in (a, b)]
    rec = (b * np.log(a)).sum(axis=1).mean()
    assert found.marginal == pytest.approx(np.mean(entropies))
    assert found.conditional == pytest.approx(np.mean(own))
    assert found.pairs is not None
    assert found.pairs.reconstruction == pytest.approx(rec)
    assert found.pairs.er_bound == pytest.approx(entropies[1] + rec)
    assert (found.pairs.infonce_bound, found.pairs.alignment, found.pairs.infonce_ceiling) == (None, None, math.log(50))
    alone = look_at_codes(p1)
    assert alone.pairs is None
    assert (alone.marginal, alone.conditional) == pytest.approx((entropies[0], own[0]))


def test_codes_of_one_datum_are_likelier_than_those_of_another() -> None:
    codes = torch.eye(10)[torch.randint(10, (2000,))]
    found = look_at_codes(codes, codes).pairs
    assert found is not None
    assert found.nearer == pytest.approx(0.95, abs=0.01)  # a tenth of the others have the same code
    soft = (8 * doubles(200, 10)).softmax(dim=1)
    other = look_at_codes(soft, (8 * doubles(200, 10)).softmax(dim=1)).pairs
    assert other is not None
    assert other.nearer == pytest.approx(0.5, abs=0.12)


def test_probabilities_of_zero_give_numbers() -> None:
    other = torch.eye(6).roll(1, 0)  # the target's code has no probability at all
    for p1, p2 in ((torch.eye(6), other), (other, torch.eye(6)), (torch.eye(6), torch.full((6, 6), 1 / 6))):
        found = look_at_codes(p1, p2)
        assert found.pairs is not None
        values = [found.marginal, found.conditional, found.pairs.reconstruction, found.pairs.er_bound, found.pairs.nearer]
        assert np.isfinite(values).all()
        assert found.pairs.reconstruction < -50


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_of_probabilities_agree_to_their_rounding(dtype: torch.dtype) -> None:
    p = doubles(40, 8).mul(2).softmax(dim=1)
    exact, found = look_at_codes(p, p), look_at_codes(p.to(dtype), p.to(dtype))
    near = 2 * torch.finfo(dtype).eps
    assert found.marginal == pytest.approx(exact.marginal, rel=near, abs=near)
    assert found.conditional == pytest.approx(exact.conditional, rel=near, abs=near)


@pytest.mark.parametrize(
    ("p1", "p2", "words"),
    [
        (torch.full((4, 3), 0.5), None, "must hold probabilities"),
        (torch.eye(3) - 0.1, None, "must hold probabilities"),
        (torch.eye(3), torch.eye(4), "the same shape"),
        (torch.eye(3)[:1], None, "at least 2 rows"),
        (torch.ones(4, 1), None, "at least 2 codes"),
    ],
)
def test_what_are_no_distributions_is_refused(p1: Tensor, p2: Tensor | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        look_at_codes(p1, p2)


def test_readings_are_values() -> None:
    z = doubles(10, 3)
    assert look(z) == look(z)
    assert replace(look(z), kappa=2.0) != look(z)
