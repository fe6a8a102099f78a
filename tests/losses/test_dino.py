import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from entrec import discrete_reconstruction, raise_if_invalid
from entrec.branches import Centre, teacher_probabilities
from entrec.losses import DINOLoss
from tests.memory import Largest


def views(v: int, k: int = 6, w: int = 5, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(k, w, dtype=dtype) for _ in range(v)]


def codes(v: int, k: int = 6, w: int = 5) -> list[Tensor]:
    return [torch.softmax(2 * x, dim=1) for x in views(v, k, w)]


def loops(logits: list[Tensor], targets: list[Tensor], tau: float) -> float:
    """Eq. 3 of the paper for each datum and each pair of different views."""
    values = []
    for t, p in enumerate(targets):
        for s, x in enumerate(logits):
            for i in range(len(x)):
                if s != t:
                    normaliser = math.log(sum(math.exp(entry / tau) for entry in x[i].tolist()))
                    values.append(-sum(p[i, w].item() * (x[i, w].item() / tau - normaliser) for w in range(x.shape[1])))
    return sum(values) / len(values)


@pytest.mark.parametrize(("v", "t"), [(2, 1), (2, 2), (5, 2), (3, 3)])
def test_it_is_the_cross_entropy_over_pairs_of_different_views(v: int, t: int) -> None:
    logits, targets = views(v), codes(t)
    assert DINOLoss(0.2)(logits, targets).item() == pytest.approx(loops(logits, targets, 0.2), rel=1e-12)
    pairs = [
        discrete_reconstruction(p, torch.log_softmax(logits[s] / 0.2, dim=1)).item()
        for i, p in enumerate(targets)
        for s in range(v)
        if s != i
    ]
    assert DINOLoss(0.2)(torch.stack(logits), torch.stack(targets)).item() == pytest.approx(-sum(pairs) / len(pairs))


def test_the_peers_loss_is_the_same_with_its_centre_and_its_teachers_temperature() -> None:
    peers = pytest.importorskip("lightly.loss")
    theirs, centre = peers.DINOLoss(output_dim=5, teacher_temp=0.07, student_temp=0.2), Centre(5)
    for _ in range(3):
        teacher = views(2, dtype=torch.float32)
        student = [x.requires_grad_() for x in views(4, dtype=torch.float32)]
        targets = [teacher_probabilities(x, centre.value, 0.07) for x in teacher]
        ours, exact = DINOLoss(0.2)(student, targets), theirs(teacher, student, teacher_temp=0.07)
        torch.testing.assert_close(ours, exact)
        torch.testing.assert_close(torch.autograd.grad(ours, student), torch.autograd.grad(exact, student))
        centre.update(torch.cat(teacher))


def test_gradients_are_exact_and_reach_the_logits_alone() -> None:
    logits, targets = [x.requires_grad_() for x in views(3)], [p.requires_grad_() for p in codes(2)]
    loss = DINOLoss(0.5)
    assert torch.autograd.gradcheck(lambda *x: loss(x, targets), logits)
    gradients = torch.autograd.grad(loss(logits, targets), [*logits, *targets], allow_unused=True)
    assert [g is None for g in gradients] == [False] * 3 + [True] * 2


def test_the_only_view_that_nobody_must_predict_from_gets_no_gradient() -> None:
    logits = [x.requires_grad_() for x in views(2)]
    first, second = torch.autograd.grad(DINOLoss()(logits, codes(1)), logits, allow_unused=True)
    assert first is None
    assert second.abs().sum() > 0


def test_uniform_predictions_sit_at_log_w_and_the_least_is_the_codes_entropy() -> None:
    targets = codes(2, w=7)
    assert DINOLoss()([torch.zeros(6, 7)] * 2, targets).item() == pytest.approx(math.log(7))
    swapped = [0.1 * targets[1].log(), 0.1 * targets[0].log()]  # each view predicts the other's code
    entropy = -sum((p * p.log()).sum(dim=1).mean().item() for p in targets) / 2
    assert DINOLoss(0.1)(swapped, targets).item() == pytest.approx(entropy)


@pytest.mark.parametrize("tau", [0.01, 0.1])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_certain_and_wrong_predictions_keep_finite_gradients(tau: float, dtype: torch.dtype) -> None:
    logits = [(1000 * torch.eye(4)).to(dtype).requires_grad_() for _ in range(2)]
    wrong = torch.eye(4).roll(1, 0)
    loss = DINOLoss(tau)(logits, (wrong, wrong))
    assert loss.item() == pytest.approx(1000 / tau, rel=1e-2)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, logits))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits, targets = [x.to(dtype) for x in views(3)], [p.to(dtype) for p in codes(2)]
    loss = DINOLoss()(logits, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(loops(logits, targets, 0.1), rel=1e-4)
    singles = [x.float() for x in logits]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert DINOLoss()(singles, targets).item() == loss.item()


def test_no_pair_is_held() -> None:
    logits, targets = [x.requires_grad_() for x in views(8, 16, 64)], codes(2, 16, 64)
    with Largest() as watch:
        DINOLoss()(logits, targets).backward()
    assert watch.elements <= 8 * 16 * 64


def test_bad_input_is_refused() -> None:
    loss, x, p = DINOLoss(), torch.randn(4, 3), torch.softmax(torch.randn(4, 3), dim=1)
    make: Callable[..., DINOLoss] = DINOLoss
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="student_temperature must be positive"):
            make(bad)
    with pytest.raises(ValueError, match="logits must be at least 2 tensors, one per view, got 1"):
        loss((x,), (p,))
    with pytest.raises(ValueError, match=r"targets\[1\] must hold probabilities"):
        loss((x, x), (p, x))
    with pytest.raises(ValueError, match=r"logits\[0\] must be finite"):
        loss((x / 0, x), (p, p))
    with pytest.raises(ValueError, match=r"logits\[0\] and targets\[0\] must have the same shape"):
        loss((x, x), (p[:, :2], p))


def test_unvalidated_it_leaves_faults_in_the_flag() -> None:
    x = torch.randn(4, 3)
    DINOLoss(validate=False)((x, x), (x, x))
    with pytest.raises(ValueError, match="probabilities were negative or did not sum to one"):
        raise_if_invalid()


def test_repr_shows_the_settings() -> None:
    assert repr(DINOLoss(0.2)) == "DINOLoss(student_temperature=0.2, gather_distributed=False)"
