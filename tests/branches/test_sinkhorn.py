import math

import pytest
import torch
from torch import Tensor

from entrec.branches import sinkhorn, total_over_ranks


def loops(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """SwAV's Algorithm 1, entry by entry."""
    k, w = scores.shape
    q = [[math.exp(scores[i, j].item() / epsilon) for j in range(w)] for i in range(k)]
    for _ in range(iterations):
        for j in range(w):
            column = sum(q[i][j] for i in range(k))
            for i in range(k):
                q[i][j] /= column * w
        for i in range(k):
            row = sum(q[i])
            q[i] = [x / (row * k) for x in q[i]]
    return k * torch.tensor(q, dtype=torch.float64)


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_it_is_the_papers_algorithm(iterations: int) -> None:
    scores = torch.randn(7, 4, dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(scores, 0.3, iterations), loops(scores, 0.3, iterations), rtol=1e-12, atol=1e-14)
    single = sinkhorn(scores.float(), 0.3, iterations)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, loops(scores, 0.3, iterations).float(), rtol=1e-4, atol=1e-6)


def test_the_peers_codes_are_the_same() -> None:
    peers = pytest.importorskip("lightly.loss.swav_loss")
    scores = torch.rand(16, 6) * 2 - 1
    torch.testing.assert_close(sinkhorn(scores), peers.sinkhorn(scores), rtol=1e-4, atol=1e-6)


def test_converged_rows_sum_to_one_and_columns_to_their_share() -> None:
    codes = sinkhorn(torch.randn(12, 5, dtype=torch.float64), epsilon=0.5, iterations=2000)
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(12, dtype=torch.float64))
    torch.testing.assert_close(codes.sum(dim=0), torch.full((5,), 12 / 5, dtype=torch.float64), rtol=1e-9, atol=0)


def test_converged_codes_are_the_scores_up_to_a_factor_per_row_and_column() -> None:
    scores = torch.randn(6, 4, dtype=torch.float64)
    potentials = sinkhorn(scores, epsilon=0.5, iterations=2000).log() - scores / 0.5
    twice_centred = potentials - potentials.mean(0) - potentials.mean(1, keepdim=True) + potentials.mean()
    torch.testing.assert_close(twice_centred, torch.zeros(6, 4, dtype=torch.float64), rtol=0, atol=1e-9)


def test_equal_scores_give_uniform_codes_and_balanced_ones_stay() -> None:
    torch.testing.assert_close(sinkhorn(torch.full((6, 3), 7.0)), torch.full((6, 3), 1 / 3))
    torch.testing.assert_close(sinkhorn(torch.eye(3).repeat(2, 1)), torch.eye(3).repeat(2, 1), rtol=0, atol=1e-6)


def test_one_prototype_takes_not_all_rows_though_all_prefer_it() -> None:
    scores = torch.rand(64, 4) * 0.1
    scores[:, 0] += 0.5
    codes = sinkhorn(scores, iterations=100)
    torch.testing.assert_close(codes.mean(dim=0), torch.full((4,), 0.25), rtol=1e-3, atol=0)
    assert (torch.softmax(scores / 0.05, dim=1).mean(dim=0)[0]) > 0.9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e3])
def test_any_precision_and_any_size_of_scores_is_safe(dtype: torch.dtype, size: float) -> None:
    scores = (size * (torch.rand(16, 5) * 2 - 1)).to(dtype)
    codes = sinkhorn(scores)
    assert codes.dtype == torch.promote_types(dtype, torch.float32)
    assert torch.isfinite(codes).all()
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(16, dtype=codes.dtype))
    exact = sinkhorn(scores.double())
    torch.testing.assert_close(codes.double(), exact, rtol=1e-3 * max(1.0, size / 100), atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(sinkhorn(scores), codes, rtol=0, atol=0)


def test_two_columns_that_no_row_wants_are_shared_out_all_the_same() -> None:
    scores = torch.zeros(8, 4)
    scores[:, 2:] = -1e3  # e^-20000 of the others
    codes = sinkhorn(scores, iterations=1)
    torch.testing.assert_close(codes, torch.full((8, 4), 0.25))


def test_it_follows_the_order_of_rows_and_columns() -> None:
    scores = torch.randn(6, 4, dtype=torch.float64)
    rows, columns = torch.randperm(6), torch.randperm(4)
    torch.testing.assert_close(sinkhorn(scores[rows][:, columns]), sinkhorn(scores)[rows][:, columns])


def test_no_gradient_flows() -> None:
    assert not sinkhorn(torch.randn(4, 3, requires_grad=True)).requires_grad


def test_the_total_of_one_process_is_itself() -> None:
    x = torch.randn(3)
    assert torch.equal(total_over_ranks(x), x)
    assert torch.equal(total_over_ranks(x, largest=True), x)


def test_bad_settings_are_refused() -> None:
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"scores must have shape \(k, d\), got \(3,\)"):
        sinkhorn(x[:, 0])
    with pytest.raises(ValueError, match="epsilon must be positive"):
        sinkhorn(x, epsilon=0.0)
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        sinkhorn(x, iterations=0)
