import math
from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from entrec import (
    Gaussian,
    GeneralizedNormal,
    Laplace,
    VonMisesFisher,
    alignment,
    discrete_entropy,
    discrete_er_objective,
    discrete_reconstruction,
    effective_rank,
    er_bound,
    infonce_bound,
    kde_entropy,
    kde_log_density,
    pairwise_logsumexp,
    reconstruction,
    uniformity,
)
from entrec.estimators.entropy import Estimator
from entrec.losses import DiscreteERLoss, ERLoss

Family = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal

repeatable = settings(derandomize=True, deadline=None, max_examples=120)

# Powers of ten that points may have in each dtype with digits to spare, for them and for their gradients.
POWERS = {torch.float16: 2, torch.bfloat16: 30, torch.float32: 30, torch.float64: 30}
EUCLIDEAN: dict[str, Callable[[float], Family]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "generalized_normal": lambda c: GeneralizedNormal(1.5, c),
    "generalized_normal_of_beta_2": lambda c: GeneralizedNormal(2.0, c),
    "generalized_normal_of_beta_below_1": lambda c: GeneralizedNormal(0.7, c),
}

dtypes = st.sampled_from(list(POWERS))
wide_dtypes = st.sampled_from([torch.float32, torch.float64])
estimators: st.SearchStrategy[Estimator] = st.sampled_from(["joe", "plugin"])
kappas = st.floats(-3, 4).map(lambda power: 10.0**power)
families = st.sampled_from(list(EUCLIDEAN))
seeds = st.integers(0, 2**31)
rows = st.integers(1, 40)
columns = st.integers(2, 70)


@st.composite
def batches(draw: st.DrawFn, dtype: torch.dtype, k: int, d: int, scale: float = 1.0) -> Tensor:
    """Spread, repeated, clustered or equal points."""
    generator = torch.Generator().manual_seed(draw(seeds))
    z = torch.randn(k, d, generator=generator, dtype=torch.float64) + 0.1
    shape = draw(st.sampled_from(["spread", "repeated", "clustered", "equal"]))
    if shape == "repeated":
        z = z[torch.arange(k) // 2]
    elif shape == "clustered":
        z = z[torch.arange(k) % 2] + 1e-2 * z
    elif shape == "equal":
        z = z[:1].expand(k, d)
    return (scale * z).to(dtype).requires_grad_()


@st.composite
def scales(draw: st.DrawFn, dtype: torch.dtype) -> float:
    return float(10.0 ** (POWERS[dtype] * draw(st.sampled_from([0.0, -0.2, 0.2, -0.5, 0.5, -1.0, 1.0]))))


def eps(*values: float) -> float:
    """What float32 may round in a sum of terms of these sizes."""
    return 16 * torch.finfo(torch.float32).eps * (1 + sum(abs(v) for v in values))


def sound(value: Tensor) -> bool:
    return value.dtype in (torch.float32, torch.float64) and bool(torch.isfinite(value).all())


def sound_with_gradients(value: Tensor, *inputs: Tensor) -> bool:
    return sound(value) and all(bool(torch.isfinite(g).all()) for g in torch.autograd.grad(value.sum(), inputs))


@repeatable
@given(st.data(), dtypes, rows, columns, kappas, estimators)
def test_entropy_on_the_sphere_stays_between_floor_and_floor_plus_log_k_at_any_scale(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, kappa: float, estimator: Estimator
) -> None:
    z = data.draw(batches(dtype, k, d, data.draw(scales(dtype))))
    log_c = float(VonMisesFisher(kappa).log_normalizer(d))
    value = kde_entropy(z, VonMisesFisher(kappa), estimator)
    assert sound(value)
    rounding = eps(kappa, log_c)
    assert -kappa - log_c - rounding <= value.item() <= -kappa - log_c + math.log(k) + rounding


@repeatable
@given(st.data(), dtypes, st.integers(2, 40), columns, kappas, estimators)
def test_entropy_on_the_sphere_without_the_self_term_stays_within_the_range_of_log_q(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, kappa: float, estimator: Estimator
) -> None:
    z = data.draw(batches(dtype, k, d, data.draw(scales(dtype))))
    log_c = float(VonMisesFisher(kappa).log_normalizer(d))
    value = kde_entropy(z, VonMisesFisher(kappa), estimator, leave_one_out=True)
    assert sound(value)
    rounding = eps(kappa, log_c)
    assert -kappa - log_c - rounding <= value.item() <= kappa - log_c + rounding


@repeatable
@given(st.data(), wide_dtypes, rows, columns, kappas, estimators, st.integers(-90, 90))
def test_on_the_sphere_scale_does_not_matter(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, kappa: float, estimator: Estimator, power: int
) -> None:
    z, w = data.draw(batches(dtype, k, d)), data.draw(batches(dtype, k, d))
    density, c = VonMisesFisher(kappa), 2.0**power  # exact in either dtype, so that the directions are the same
    rounding = eps(kappa, float(density.log_normalizer(d)))
    for scaled, plain in (
        (kde_entropy(c * z, density, estimator), kde_entropy(z, density, estimator)),
        (reconstruction(c * z, w, density), reconstruction(z, w, density)),
        (infonce_bound(z, c * w, density), infonce_bound(z, w, density)),
        (ERLoss(density)(c * z, w), ERLoss(density)(z, w)),
        (alignment(z, c * w), alignment(z, w)),
    ):
        assert abs(scaled.item() - plain.item()) <= rounding


@repeatable
@given(st.data(), dtypes, rows, st.integers(1, 20), families, estimators)
def test_entropy_in_euclidean_space_stays_between_floor_and_floor_plus_log_k_at_any_scale(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, family: str, estimator: Estimator
) -> None:
    scale = data.draw(scales(dtype))
    z = data.draw(batches(dtype, k, d, scale))
    kernel = EUCLIDEAN[family](scale)
    log_c = float(kernel.log_normalizer(d))
    value = kde_entropy(z, kernel, estimator)
    assert sound(value)
    rounding = eps(100, log_c)
    assert -log_c - rounding <= value.item() <= -log_c + math.log(k) + rounding


@repeatable
@given(st.data(), wide_dtypes, st.integers(2, 40), st.integers(1, 20), families, estimators)
def test_scaling_points_and_kernel_together_moves_the_entropy_by_the_volume(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, family: str, estimator: Estimator
) -> None:
    z, c = data.draw(batches(dtype, k, d)), data.draw(scales(dtype))
    for leave_one_out in (False, True):
        plain = kde_entropy(z, EUCLIDEAN[family](1.0), estimator, leave_one_out).item()
        scaled = kde_entropy(c * z, EUCLIDEAN[family](c), estimator, leave_one_out).item()
        assert abs(scaled - plain - d * math.log(c)) <= eps(10 * plain, d * math.log(c)) + 1e-4


@repeatable
@given(st.data(), dtypes, rows, columns, kappas)
def test_infonce_is_finite_and_at_most_log_k(data: st.DataObject, dtype: torch.dtype, k: int, d: int, kappa: float) -> None:
    scale = data.draw(scales(dtype))
    z1, z2 = data.draw(batches(dtype, k, d, scale)), data.draw(batches(dtype, k, d, scale))
    for a, b in ((z1, z2), (z1, z1)):
        value = infonce_bound(a, b, VonMisesFisher(kappa))
        assert sound(value)
        assert -2 * kappa - eps(kappa) <= value.item() <= math.log(k) + eps(kappa)


@repeatable
@given(st.data(), dtypes, rows, columns, kappas, estimators)
def test_er_bound_is_entropy_plus_reconstruction_and_at_most_log_k(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, kappa: float, estimator: Estimator
) -> None:
    scale = data.draw(scales(dtype))
    z1, z2 = data.draw(batches(dtype, k, d, scale)), data.draw(batches(dtype, k, d, scale))
    density = VonMisesFisher(kappa)
    rounding = eps(kappa, float(density.log_normalizer(d)))
    bound = er_bound(z1, z2, density, estimator=estimator)
    assert sound(bound.value)
    assert abs(bound.value.item() - (bound.entropy.item() + bound.reconstruction.item())) <= rounding
    assert abs(bound.entropy.item() - kde_entropy(z2, density, estimator).item()) <= rounding
    assert abs(bound.reconstruction.item() - reconstruction(z2, z1, density).item()) <= rounding
    assert bound.value.item() <= math.log(k) + eps(kappa)
    assert er_bound(z1, z1, density, estimator=estimator).value.item() <= math.log(k) + eps(kappa)


@repeatable
@given(st.data(), dtypes, st.integers(2, 20), columns, st.integers(2, 4), estimators, st.booleans())
def test_er_loss_has_finite_gradients_for_any_number_of_views(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, v: int, estimator: Estimator, leave_one_out: bool
) -> None:
    scale = data.draw(scales(dtype))
    views = [data.draw(batches(dtype, k, d, scale)) for _ in range(v)]
    loss = ERLoss(VonMisesFisher(10.0), estimator=estimator, leave_one_out=leave_one_out)(*views)
    assert sound_with_gradients(loss, *views)


@repeatable
@given(st.data(), dtypes, st.integers(2, 20), st.integers(1, 20), families, estimators, st.booleans())
def test_er_loss_in_euclidean_space_has_finite_gradients_at_any_scale(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, family: str, estimator: Estimator, leave_one_out: bool
) -> None:
    scale = data.draw(scales(dtype))
    views = [data.draw(batches(dtype, k, d, scale)) for _ in range(2)]
    loss = ERLoss(EUCLIDEAN[family](scale), estimator=estimator, leave_one_out=leave_one_out)(*views)
    assert sound_with_gradients(loss, *views)


@repeatable
@given(st.data(), wide_dtypes, st.integers(2, 40), columns, kappas)
def test_order_of_samples_does_not_matter(data: st.DataObject, dtype: torch.dtype, k: int, d: int, kappa: float) -> None:
    z1, z2 = data.draw(batches(dtype, k, d)), data.draw(batches(dtype, k, d))
    order = torch.tensor(data.draw(st.permutations(range(k))))
    density = VonMisesFisher(kappa)
    rounding = eps(kappa, float(density.log_normalizer(d)))
    log_density = kde_log_density(z1, density, leave_one_out=True)
    assert (kde_log_density(z1[order], density, leave_one_out=True) - log_density[order]).abs().max() <= rounding
    assert abs((infonce_bound(z1[order], z2[order], density) - infonce_bound(z1, z2, density)).item()) <= rounding
    assert abs((ERLoss(density)(z1[order], z2[order]) - ERLoss(density)(z2, z1)).item()) <= rounding


@repeatable
@given(st.data(), dtypes, rows, st.integers(1, 30), st.integers(1, 20), st.booleans())
def test_log_of_a_sum_lies_between_its_largest_term_and_that_plus_the_log_of_their_number(
    data: st.DataObject, dtype: torch.dtype, k: int, m: int, d: int, distances: bool
) -> None:
    a, b = data.draw(batches(dtype, k, d)), data.draw(batches(dtype, m, d))
    value = pairwise_logsumexp(a, b, "sqeuclidean" if distances else "dot")
    wide_a, wide_b = a.detach().double(), b.detach().double()
    terms = -(wide_a[:, None] - wide_b[None]).square().sum(dim=-1) if distances else wide_a @ wide_b.T
    assert sound_with_gradients(value, a, b)
    rounding = eps(terms.abs().max().item(), float(d))
    assert (value >= terms.amax(dim=1) - rounding).all()
    assert (value <= terms.amax(dim=1) + math.log(m) + rounding).all()


@repeatable
@given(st.data(), dtypes, rows, st.integers(1, 200), st.floats(-2, 3))
def test_discrete_terms_stay_within_zero_and_log_d(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, sharpness: float
) -> None:
    logits = 10**sharpness * data.draw(batches(torch.float64, k, d)).detach()
    probs = torch.softmax(logits, dim=1).to(dtype).requires_grad_()
    entropy = discrete_entropy(probs)
    assert sound_with_gradients(entropy, probs)
    rounding = 4 * torch.finfo(dtype).eps * (1 + math.log(d)) + eps(math.log(d))
    assert -rounding <= entropy.item() <= math.log(d) + rounding
    rec = discrete_reconstruction(probs, torch.log_softmax(logits, dim=1))
    assert sound_with_gradients(rec, probs)
    assert rec.item() <= rounding


@repeatable
@given(st.data(), dtypes, rows, st.integers(2, 50), st.integers(2, 4))
def test_discrete_loss_is_finite_at_any_scale_of_logits_and_at_least_minus_log_d(
    data: st.DataObject, dtype: torch.dtype, k: int, d: int, v: int
) -> None:
    scale = data.draw(scales(dtype))
    views = [data.draw(batches(dtype, k, d, scale)) for _ in range(v)]
    loss = DiscreteERLoss()(*views)
    assert sound_with_gradients(loss, *views)
    assert loss.item() >= -math.log(d) - eps(math.log(d))
    terms = discrete_er_objective(views)
    assert abs(terms.loss.item() + terms.entropy.item() + terms.reconstruction.item()) <= eps(terms.loss.item())


@repeatable
@given(st.data(), dtypes, st.integers(2, 40), columns)
def test_geometry_stays_within_its_bounds_at_any_scale(data: st.DataObject, dtype: torch.dtype, k: int, d: int) -> None:
    scale = data.draw(scales(dtype))
    z1, z2 = data.draw(batches(dtype, k, d, scale)), data.draw(batches(dtype, k, d, scale))
    assert -eps() <= alignment(z1, z2).item() <= 4 + eps(4)
    assert -8 - eps(8) <= uniformity(z1, t=2.0).item() <= eps(8)
    assert 1 - eps(1) <= effective_rank(z1).item() <= min(k, d) * (1 + eps(1))
    assert all(sound(value) for value in (alignment(z1, z2), uniformity(z1), effective_rank(z1)))
