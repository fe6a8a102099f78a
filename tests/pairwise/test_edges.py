"""What a caller may do that is neither usual nor wrong."""

from typing import Any

import pytest
import torch
from torch import Tensor

from entrec import pairwise_logsumexp
from entrec.pairwise import backends, operator
from entrec.pairwise.tiled import _tiles


def test_a_learnt_exponent_may_have_a_dimension() -> None:
    a, b = torch.randn(5, 3), torch.randn(4, 3)
    p = torch.full((1,), 1.5, requires_grad=True)
    value = pairwise_logsumexp(a, b, ("lp", p))
    torch.testing.assert_close(value.detach(), pairwise_logsumexp(a, b, ("lp", 1.5)))
    (gradient,) = torch.autograd.grad(value.sum(), p)
    assert gradient.shape == (1,)


def test_one_set_in_half_precision_is_still_one_set(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    whole = backends.log_sums

    def log_sums(*x: Any, **y: Any) -> Tensor:
        seen.append(y["same"])
        return whole(*x, **y)

    monkeypatch.setattr(operator, "log_sums", log_sums)
    z = torch.randn(6, 3).half()
    pairwise_logsumexp(z, z, "dot")
    pairwise_logsumexp(z, z.clone(), "dot")
    assert seen == [True, False]


@pytest.mark.parametrize("scale", [29.0, 31.0, 40.0])
def test_a_large_upstream_gradient_at_opposite_points_overflows_nothing(scale: float) -> None:
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    (65536 * pairwise_logsumexp(x, x, "cosine", scale, exclude_diagonal=True)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.zeros(2, 2), rtol=0, atol=1.0)


@pytest.mark.parametrize(("k", "m"), [(1, 1000), (1000, 1), (50, 50), (7, 300)])
@pytest.mark.parametrize("edge", [None, 1, 16])
def test_tiles_cover_every_pair_once_and_hold_no_more_than_their_square(k: int, m: int, edge: int | None) -> None:
    seen = torch.zeros(k, m)
    for rows, columns in _tiles(k, m, edge, half=False):
        seen[rows, columns] += 1
        if edge is not None:
            assert seen[rows, columns].numel() <= edge**2
    assert (seen == 1).all()


@pytest.mark.parametrize("similarity", ["dot", "sqeuclidean", "l1"])
def test_the_operator_keeps_what_it_promises_the_compiler(similarity: str) -> None:
    for a in (torch.randn(9, 3), torch.randn(3, 9).T, torch.randn(2, 3, 9).mT):
        for b in (None, torch.randn_like(a)):
            arguments = (a.requires_grad_(), b, None, similarity, 1.0, 0.5, False, False, False, "fast", "tiled")
            torch.library.opcheck(torch.ops.entrec.pairwise_logsumexp, arguments)
