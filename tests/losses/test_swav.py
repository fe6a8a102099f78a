import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from entrec.branches import Prototypes, sinkhorn
from entrec.losses import DINOLoss, SwAVLoss


def scores(v: int, k: int = 8, w: int = 5) -> list[Tensor]:
    prototypes = Prototypes(16, w)
    return [prototypes(torch.randn(k, 16)).detach().requires_grad_() for _ in range(v)]


@pytest.mark.parametrize(("v", "t"), [(2, 2), (5, 2)])
def test_it_is_the_swapped_prediction_of_the_paper(v: int, t: int) -> None:
    logits = scores(v)
    codes = [sinkhorn(x) for x in logits[:t]]
    terms = [functional.cross_entropy(logits[s] / 0.2, codes[i]).item() for i in range(t) for s in range(v) if s != i]
    assert SwAVLoss(0.2)(logits, codes).item() == pytest.approx(sum(terms) / len(terms), rel=1e-5)


@pytest.mark.parametrize("small", [0, 3])
def test_the_peers_loss_is_the_same(small: int) -> None:
    peers = pytest.importorskip("lightly.loss")
    logits = scores(2 + small)
    ours = SwAVLoss(0.1)(logits, [sinkhorn(x, 0.05, 3) for x in logits[:2]])
    theirs = peers.SwaVLoss(temperature=0.1, sinkhorn_iterations=3, sinkhorn_epsilon=0.05)(logits[:2], logits[2:]).squeeze()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits), rtol=1e-4, atol=1e-6)


def test_the_peers_loss_with_a_queue_is_ours_with_codes_of_queue_and_batch() -> None:
    peers = pytest.importorskip("lightly.loss")
    logits, queued = scores(2), [x.detach() for x in scores(2, k=12)]
    codes = [sinkhorn(torch.cat([x, q]))[: len(x)] for x, q in zip(logits, queued, strict=True)]
    theirs = peers.SwaVLoss()(logits, [], queued).squeeze()
    torch.testing.assert_close(SwAVLoss()(logits, codes), theirs, rtol=1e-5, atol=1e-6)


def test_on_the_same_codes_it_is_dinos() -> None:
    logits = scores(3)
    codes = [sinkhorn(x) for x in logits[:2]]
    assert SwAVLoss(0.3)(logits, codes).item() == DINOLoss(0.3)(logits, codes).item()


def test_gradients_are_exact_and_codes_get_none() -> None:
    logits = [x.detach().double().requires_grad_() for x in scores(3)]
    codes = [sinkhorn(x).requires_grad_() for x in logits[:2]]
    loss = SwAVLoss(0.5)
    assert torch.autograd.gradcheck(lambda *x: loss(x, codes), logits)
    gradients = torch.autograd.grad(loss(logits, codes), [*logits, *codes], allow_unused=True)
    assert [g is None for g in gradients] == [False] * 3 + [True] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_give_a_float32_loss(dtype: torch.dtype) -> None:
    logits = [x.detach().to(dtype) for x in scores(2)]
    loss = SwAVLoss()(logits, [sinkhorn(x) for x in logits])
    assert loss.dtype == torch.float32
    exact = SwAVLoss()([x.double() for x in logits], [sinkhorn(x.double()) for x in logits])
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


def test_uniform_codes_and_scores_cost_log_w() -> None:
    x = torch.zeros(6, 512)
    assert SwAVLoss()((x, x), (sinkhorn(x), sinkhorn(x))).item() == pytest.approx(math.log(512), rel=1e-6)


def test_bad_input_is_refused() -> None:
    x = torch.randn(4, 3)
    with pytest.raises(ValueError, match="temperature must be positive"):
        SwAVLoss(0.0)
    with pytest.raises(ValueError, match=r"codes\[0\] must hold probabilities"):
        SwAVLoss()((x, x), (x, x))
    with pytest.raises(ValueError, match="codes must be 1 to 2 tensors, of the first views, got 0"):
        SwAVLoss()((x, x), ())


def test_repr_shows_the_settings() -> None:
    assert repr(SwAVLoss(0.2)) == "SwAVLoss(temperature=0.2, gather_distributed=False)"
