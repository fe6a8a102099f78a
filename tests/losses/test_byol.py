import math

import pytest
import torch
from torch import Tensor

from entrec import raise_if_invalid
from entrec.losses import BYOLLoss


def views(v: int, k: int = 6, d: int = 4, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [3 * torch.randn(k, d, dtype=dtype) for _ in range(v)]


def loops(predictions: list[Tensor], targets: list[Tensor]) -> float:
    """Eq. 2 of the paper for each datum and each pair of different views."""
    values: list[float] = []
    for s, source in enumerate(predictions):
        for t, target in enumerate(targets):
            for i in range(len(source)):
                if s != t:
                    p, z = source[i] / source[i].norm(), target[i] / target[i].norm()
                    values.append((p - z).square().sum().item())
    return sum(values) / len(values)


@pytest.mark.parametrize(("v", "t"), [(2, 1), (2, 2), (3, 2), (4, 4)])
def test_it_is_the_squared_distance_of_unit_vectors_over_pairs_of_different_views(v: int, t: int) -> None:
    predictions, targets = views(v), views(t)
    assert BYOLLoss()(predictions, targets).item() == pytest.approx(loops(predictions, targets), rel=1e-12)
    assert BYOLLoss()(torch.stack(predictions), torch.stack(targets)).item() == pytest.approx(loops(predictions, targets))


def test_the_peers_loss_is_the_same_after_two_plus_two_times_it() -> None:
    peers = pytest.importorskip("lightly.loss")
    (p0, p1), (z0, z1) = views(2), views(2)
    negative_cosine = peers.NegativeCosineSimilarity()
    theirs = 0.5 * (negative_cosine(p0, z1) + negative_cosine(p1, z0))
    torch.testing.assert_close(BYOLLoss()((p0, p1), (z0, z1)), 2 + 2 * theirs)


def test_gradients_are_exact_and_reach_the_predictions_alone() -> None:
    predictions, targets = [x.requires_grad_() for x in views(3)], [x.requires_grad_() for x in views(2)]
    loss = BYOLLoss()
    assert torch.autograd.gradcheck(lambda *p: loss(p, targets), predictions)
    gradients = torch.autograd.grad(loss(predictions, targets), [*predictions, *targets], allow_unused=True)
    assert [g is None for g in gradients] == [False] * 3 + [True] * 2


def test_targets_that_hang_on_the_student_are_constants_too() -> None:
    z, shift = [x.requires_grad_() for x in views(2)], views(2)
    predictions = [x + y for x, y in zip(z, shift, strict=True)]
    found = torch.autograd.grad(BYOLLoss()(predictions, z), z, retain_graph=True)
    exact = torch.autograd.grad(BYOLLoss()(predictions, [x.detach().clone() for x in z]), z)
    torch.testing.assert_close(found, exact, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    predictions, targets = ([x.to(dtype) for x in views(2)] for _ in range(2))
    loss = BYOLLoss()(predictions, targets)
    assert loss.dtype == torch.float32
    exact = BYOLLoss()([x.double() for x in predictions], [x.double() for x in targets])
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    singles = [x.float() for x in predictions]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert BYOLLoss()(singles, targets).item() == loss.item()


def test_extremes_are_exact() -> None:
    z = torch.randn(5, 3)
    assert BYOLLoss()((z, z), (1e-20 * z, 1e20 * z)).item() == pytest.approx(0, abs=1e-6)
    assert BYOLLoss()((z, z), (-z, -z)).item() == pytest.approx(4)


def test_bad_input_is_refused() -> None:
    loss, z = BYOLLoss(), torch.randn(4, 3)
    with pytest.raises(ValueError, match="predictions must be at least 2 tensors, one per view, got 1"):
        loss((z,), (z,))
    for targets in ((), (z, z, z)):
        with pytest.raises(ValueError, match=f"targets must be 1 to 2 tensors, of the first views, got {len(targets)}"):
            loss((z, z), targets)
    with pytest.raises(ValueError, match=r"predictions\[0\] and targets\[0\] must have the same shape"):
        loss((z, z), (z[:2],))
    with pytest.raises(TypeError, match="targets must be a sequence of tensors"):
        loss((z, z), None)
    with pytest.raises(ValueError, match=r"targets\[1\] must hold directions on the sphere, but 4 of its 4 rows are zero"):
        loss((z, z), (z, 0 * z))
    with pytest.raises(ValueError, match=r"predictions\[1\] must be finite"):
        loss((z, z * math.nan), (z, z))


def test_unvalidated_it_leaves_faults_in_the_flag() -> None:
    z = torch.randn(4, 3)
    BYOLLoss(validate=False)((z, z), (z, 0 * z))
    with pytest.raises(ValueError, match="zero vector"):
        raise_if_invalid()


def test_repr_shows_the_settings() -> None:
    assert repr(BYOLLoss(True)) == "BYOLLoss(gather_distributed=True)"
