import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from entrec import discrete_entropy, discrete_er_objective, discrete_reconstruction
from entrec.losses import DiscreteERLoss


def logits(v: int, k: int = 6, d: int = 4) -> list[Tensor]:
    return [torch.randn(k, d, dtype=torch.float64) for _ in range(v)]


def codes(v: int, k: int = 6, d: int = 4) -> list[Tensor]:
    return [torch.softmax(x, dim=1) for x in logits(v, k, d)]


@pytest.mark.parametrize("v", [2, 3, 4])
def test_loss_of_v_views_is_the_mean_over_ordered_pairs_computed_by_hand(v: int) -> None:
    x, tau = logits(v), 0.2
    p = [torch.softmax(view / tau, dim=1) for view in x]
    entropy = sum(discrete_entropy(view, chunks=2).item() for view in p) / v
    pairs = [discrete_reconstruction(p[t], p[s].log()).item() for s in range(v) for t in range(v) if s != t]
    loss = DiscreteERLoss(temperature=tau, weight=0.7, chunks=2)(*x)
    assert loss.item() == pytest.approx(-entropy - 0.7 * sum(pairs) / len(pairs), abs=1e-10)


def test_defaults_are_temperature_a_tenth_weight_one_and_one_chunk() -> None:
    x = logits(2)
    exact = discrete_er_objective(x, temperature=0.1, weight=1.0, chunks=1).loss
    assert DiscreteERLoss()(*x).item() == exact.item()


def test_teachers_codes_are_predicted_at_the_students_temperature() -> None:
    x, (t1, t2) = logits(2), codes(2)
    cross_entropies = functional.cross_entropy(x[0] / 0.2, t2) + functional.cross_entropy(x[1] / 0.2, t1)
    terms = DiscreteERLoss(temperature=0.2).terms(*x, targets=(t1, t2))
    assert terms.reconstruction.item() == pytest.approx(-cross_entropies.item() / 2)


def test_multi_crop_predicts_only_the_codes_of_the_views_that_the_teacher_saw() -> None:
    x, targets = logits(4), codes(2)
    pairs = [-functional.cross_entropy(x[s], targets[t]).item() for t in range(2) for s in range(4) if s != t]
    terms = DiscreteERLoss(temperature=1.0).terms(*x, targets=targets)
    assert terms.reconstruction.item() == pytest.approx(sum(pairs) / 6)
    entropies = [discrete_entropy(torch.softmax(view, dim=1)).item() for view in x]
    assert terms.entropy.item() == pytest.approx(sum(entropies) / 4)


def test_entropy_is_the_students_own_and_not_that_of_targets_or_predictions() -> None:
    x = logits(2)
    alone = DiscreteERLoss().terms(*x).entropy.item()
    assert DiscreteERLoss().terms(*x, targets=codes(2), predictions=logits(2)).entropy.item() == alone
    student = sum(discrete_entropy(torch.softmax(view / 0.1, dim=1)).item() for view in x) / 2
    assert alone == pytest.approx(student)


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_gradient_of_the_entropy_is_not_zero_and_exact(chunks: int) -> None:
    x = [view.requires_grad_() for view in logits(2)]
    entropy = DiscreteERLoss(temperature=0.5, chunks=chunks).terms(*x, targets=codes(2)).entropy
    exact = sum((discrete_entropy(torch.softmax(view / 0.5, dim=1), chunks) for view in x), start=torch.zeros(())) / 2
    for gradient, true in zip(torch.autograd.grad(entropy, x), torch.autograd.grad(exact, x), strict=True):
        assert gradient.abs().max() > 1e-3
        torch.testing.assert_close(gradient, true, rtol=1e-9, atol=1e-12)


def test_no_gradient_reaches_the_targets() -> None:
    x = [view.requires_grad_() for view in logits(2)]
    targets = [p.requires_grad_() for p in codes(2)]
    predictions = [view.requires_grad_() for view in logits(2)]
    loss = DiscreteERLoss()(*x, targets=targets, predictions=predictions)
    gradients = torch.autograd.grad(loss, [*x, *targets, *predictions], allow_unused=True)
    assert [g is None for g in gradients] == [False, False, True, True, False, False]


def test_terms_are_those_of_the_objective_and_forward_is_their_loss() -> None:
    x, targets, predictions = logits(3), codes(1), logits(3)
    module = DiscreteERLoss(0.2, 0.3, 3)
    terms = module.terms(*x, targets=targets, predictions=predictions)
    exact = discrete_er_objective(x, 0.2, 0.3, 3, targets=targets, predictions=predictions)
    assert [value.item() for value in terms] == [value.item() for value in exact]
    assert module(*x, targets=targets, predictions=predictions).item() == exact.loss.item()
    assert terms.loss.item() == pytest.approx(-(terms.entropy.item() + 0.3 * terms.reconstruction.item()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_probabilities_that_underflow_keep_finite_gradients(dtype: torch.dtype) -> None:
    x = [(1000 * torch.eye(4)[torch.arange(8) % 4]).to(dtype).requires_grad_() for _ in range(2)]
    x[1] = x[1].detach().roll(1, 0).requires_grad_()  # every prediction certain, and wrong
    module = DiscreteERLoss(temperature=0.1)
    one_hot = torch.eye(4)[torch.arange(8) % 4]
    for targets in (None, (one_hot, one_hot)):
        loss = module(*x, targets=targets)
        assert torch.isfinite(loss)
        for gradient in torch.autograd.grad(loss, x):
            assert torch.isfinite(gradient).all()


def test_a_class_that_underflows_for_all_counts_nothing_and_leaves_finite_gradients() -> None:
    x = torch.zeros(8, 3)
    x[:, 2] = -20.0  # e^-200 underflows to nothing in float32
    x.requires_grad_()
    entropy = DiscreteERLoss(temperature=0.1).terms(x, x).entropy
    (gradient,) = torch.autograd.grad(entropy, x)
    assert torch.isfinite(gradient).all()
    assert entropy.item() == pytest.approx(math.log(2))


def test_collapsed_codes_cost_the_entropy_and_uniform_predictions_the_reconstruction() -> None:
    module = DiscreteERLoss()
    collapsed = 50 * torch.eye(5)[:1].expand(10, 5)
    undecided = torch.zeros(10, 5)
    spread = 50 * torch.eye(5).repeat(2, 1)
    assert module(collapsed, collapsed).item() == pytest.approx(0.0, abs=1e-6)
    assert module(undecided, undecided).item() == pytest.approx(0.0, abs=1e-6)
    assert module(spread, spread).item() == pytest.approx(-math.log(5), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_a_float32_loss_and_gradients_within_its_precision(dtype: torch.dtype) -> None:
    x = [torch.randn(16, 8).to(dtype).requires_grad_() for _ in range(2)]
    loss, exact = DiscreteERLoss()(*x), DiscreteERLoss()(*(view.double() for view in x))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    eps = torch.finfo(dtype).eps
    for gradient, true in zip(torch.autograd.grad(loss, x), torch.autograd.grad(exact, x), strict=True):
        torch.testing.assert_close(gradient.double(), true.double(), rtol=4 * eps, atol=4 * eps)


def test_autocast_changes_neither_value_nor_gradient() -> None:
    x = [torch.randn(16, 8, requires_grad=True) for _ in range(2)]
    targets = [torch.softmax(torch.randn(16, 8), dim=1) for _ in range(2)]
    loss = DiscreteERLoss()(*x, targets=targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = DiscreteERLoss()(*x, targets=targets)
    assert inside.dtype == torch.float32
    assert inside.item() == loss.item()
    for a, b in zip(torch.autograd.grad(inside, x), torch.autograd.grad(loss, x), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_repr_shows_the_settings() -> None:
    assert repr(DiscreteERLoss(0.2, 0.5, 4)) == (
        "DiscreteERLoss(temperature=0.2, weight=0.5, chunks=4, gather_distributed=False)"
    )
