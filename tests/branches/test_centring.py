import pytest
import torch

from entrec.branches import Centre, teacher_probabilities


def test_after_n_updates_it_is_the_closed_form() -> None:
    centre, m = Centre(3, momentum=0.8), 0.8
    batches = [torch.randn(5, 3) + n for n in range(6)]
    for batch in batches:
        centre.update(batch)
    exact = sum((1 - m) * m ** (5 - n) * batch.double().mean(dim=0) for n, batch in enumerate(batches))
    assert isinstance(exact, torch.Tensor)
    torch.testing.assert_close(centre.value.double(), exact, rtol=1e-5, atol=1e-6)


def test_momentum_one_never_moves_and_zero_is_the_batchs_mean() -> None:
    x = torch.randn(8, 3)
    still, copied = Centre(3, 1.0), Centre(3, 0.0)
    still.update(x)
    copied.update(x)
    assert torch.equal(still.value, torch.zeros(3))
    torch.testing.assert_close(copied.value, x.mean(dim=0))


def test_it_is_in_checkpoints_and_keeps_float32_for_half_precision_logits() -> None:
    centre, again = Centre(2), Centre(2)
    centre.update(torch.full((4000, 2), 40.0, dtype=torch.float16))  # the sum is beyond float16
    torch.testing.assert_close(centre.value, torch.full((2,), 4.0))
    again.load_state_dict(centre.state_dict(), strict=True)
    assert torch.equal(again.value, centre.value)


def test_probabilities_are_the_softmax_of_centred_and_sharpened_logits() -> None:
    logits, c = torch.randn(4, 3, requires_grad=True), torch.randn(3)
    p = teacher_probabilities(logits, c, 0.04)
    torch.testing.assert_close(p, torch.softmax((logits.detach() - c) / 0.04, dim=1))
    assert not p.requires_grad
    half = teacher_probabilities(logits.half(), c, 0.04)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.sum(dim=1), torch.ones(4))


def test_the_peers_centre_and_probabilities_are_the_same() -> None:
    peers = pytest.importorskip("lightly.loss")
    theirs, ours = peers.DINOLoss(output_dim=5), Centre(5)
    for _ in range(3):
        teacher = [torch.randn(6, 5) for _ in range(2)]
        theirs(teacher, teacher)
        ours.update(torch.cat(teacher))
    torch.testing.assert_close(theirs.center.flatten(), ours.value)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum must be from 0 to 1, got 2"):
        Centre(3, 2.0)
    with pytest.raises(ValueError, match="same last dimension"):
        Centre(3).update(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="temperature must be positive"):
        teacher_probabilities(torch.zeros(2, 3), torch.zeros(3), 0.0)
