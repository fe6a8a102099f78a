import math

import pytest
import torch
from torch import Tensor

from entrec import checks, raise_if_invalid
from entrec.losses import DeepClusterLoss, SwAVLoss

LABELS = torch.tensor([0, 2, 1, 2, 3])


def views(v: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(5, 4, dtype=dtype) for _ in range(v)]


def loops(logits: list[Tensor], labels: Tensor, tau: float) -> float:
    values: list[float] = []
    for x in logits:
        for row, label in zip(x.tolist(), labels.tolist(), strict=True):
            values.append(math.log(sum(math.exp(entry / tau) for entry in row)) - row[label] / tau)
    return sum(values) / len(values)


@pytest.mark.parametrize("v", [1, 2, 4])
def test_it_is_the_mean_cross_entropy_of_views_and_rows(v: int) -> None:
    logits = views(v)
    assert DeepClusterLoss(0.3)(logits, LABELS).item() == pytest.approx(loops(logits, LABELS, 0.3), rel=1e-12)
    assert DeepClusterLoss(0.3)(torch.stack(logits), LABELS).item() == pytest.approx(loops(logits, LABELS, 0.3), rel=1e-12)


def test_one_tensor_is_one_view() -> None:
    (x,) = views(1)
    assert DeepClusterLoss()(x, LABELS).item() == DeepClusterLoss()((x,), LABELS).item()


def test_with_one_hot_codes_of_both_views_it_is_swavs() -> None:
    logits, codes = views(2), torch.eye(4, dtype=torch.float64)[LABELS]
    assert DeepClusterLoss(0.2)(logits, LABELS).item() == pytest.approx(SwAVLoss(0.2)(logits, (codes, codes)).item())


def test_gradients_are_exact() -> None:
    loss = DeepClusterLoss(0.5)
    assert torch.autograd.gradcheck(lambda *x: loss(x, LABELS), [x.requires_grad_() for x in views(2)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits = [x.to(dtype) for x in views(2)]
    loss = DeepClusterLoss()(logits, LABELS)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(loops(logits, LABELS, 0.1), rel=1e-5)
    singles = [x.float() for x in logits]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert DeepClusterLoss()(singles, LABELS).item() == loss.item()


def test_bad_input_is_refused() -> None:
    loss, x = DeepClusterLoss(), torch.randn(5, 4)
    with pytest.raises(ValueError, match="temperature must be positive"):
        DeepClusterLoss(-1.0)
    for bad, told in ((LABELS - 1, "-1 to 2"), (LABELS + 1, "1 to 4")):
        with pytest.raises(ValueError, match=f"labels must be from 0 to 3, got {told}"):
            loss(x, bad)
    with pytest.raises(TypeError, match=r"labels must be an int64 tensor, got torch.float32"):
        loss(x, LABELS.float())
    with pytest.raises(ValueError, match=r"labels must have shape \(5,\), one per row of logits, got \(4,\)"):
        loss(x, LABELS[:4])
    with pytest.raises(ValueError, match="logits must be at least one tensor, got none"):
        loss((), LABELS)
    with pytest.raises(TypeError, match="logits must be a tensor, or a sequence"):
        loss(None, LABELS)
    with pytest.raises(ValueError, match=r"logits\[1\] must be finite"):
        loss((x, x / 0), LABELS)


def test_unvalidated_labels_are_flagged_and_end_nothing() -> None:
    x = torch.randn(5, 4)
    value = DeepClusterLoss(validate=False)(x, LABELS + 1)
    assert torch.isfinite(value)
    assert checks.Fault(int(next(checks._flags.buffers()))) == checks.Fault.NOT_A_DISTRIBUTION
    with pytest.raises(ValueError, match="did not sum to one"):
        raise_if_invalid()


def test_repr_shows_the_settings() -> None:
    assert repr(DeepClusterLoss(0.2)) == "DeepClusterLoss(temperature=0.2, gather_distributed=False)"
