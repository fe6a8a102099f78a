import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from entrec import pairwise_logsumexp
from entrec.pairwise import Similarity

EVERY_SIMILARITY: list[Similarity] = ["dot", "sqeuclidean", "l1", ("lp", 0.5), ("lp", 1.5), ("lp", 2.0), ("lp", 3.0)]
every_similarity = pytest.mark.parametrize("similarity", EVERY_SIMILARITY, ids=str)


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def similarity_by_hand(a: list[float], b: list[float], similarity: Similarity) -> float:
    if similarity == "dot":
        return sum(x * y for x, y in zip(a, b, strict=True))
    power = {"sqeuclidean": 2.0, "l1": 1.0}[similarity] if isinstance(similarity, str) else float(similarity[1])
    return -math.fsum(abs(x - y) ** power for x, y in zip(a, b, strict=True))


def by_hand(a: Tensor, b: Tensor, similarity: Similarity, scale: float, exclude_diagonal: bool) -> Tensor:
    rows = []
    for i, x in enumerate(a.tolist()):
        terms = [
            math.exp(scale * similarity_by_hand(x, y, similarity))
            for j, y in enumerate(b.tolist())
            if not (exclude_diagonal and i == j)
        ]
        rows.append(math.log(sum(terms)))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("exclude_diagonal", [False, True])
@pytest.mark.parametrize(("k", "m"), [(5, 5), (3, 6), (6, 3), (1, 4), (30, 40)])
@every_similarity
def test_each_row_is_the_log_of_the_summed_exponentials(similarity: Similarity, k: int, m: int, exclude_diagonal: bool) -> None:
    a, b = doubles(k, 3), doubles(m, 3)
    exact = by_hand(a, b, similarity, 0.7, exclude_diagonal)
    value = pairwise_logsumexp(a, b, similarity, 0.7, exclude_diagonal)
    torch.testing.assert_close(value, exact, rtol=1e-10, atol=1e-10)


@every_similarity
def test_scale_is_one_unless_given_and_may_be_a_tensor(similarity: Similarity) -> None:
    a, b = doubles(4, 3), doubles(5, 3)
    torch.testing.assert_close(pairwise_logsumexp(a, b, similarity), by_hand(a, b, similarity, 1.0, False))
    for scale in (torch.tensor(0.7, dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)):
        value = pairwise_logsumexp(a, b, similarity, scale)
        torch.testing.assert_close(value, by_hand(a, b, similarity, 0.7, False))


@pytest.mark.parametrize("exclude_diagonal", [False, True])
@every_similarity
def test_leading_dimensions_are_a_batch(similarity: Similarity, exclude_diagonal: bool) -> None:
    a, b = doubles(2, 3, 4, 5), doubles(2, 3, 6, 5)
    value = pairwise_logsumexp(a, b, similarity, 0.7, exclude_diagonal)
    assert value.shape == (2, 3, 4)
    for i in range(2):
        for j in range(3):
            exact = pairwise_logsumexp(a[i, j], b[i, j], similarity, 0.7, exclude_diagonal)
            torch.testing.assert_close(value[i, j], exact)


def test_large_similarities_neither_overflow_nor_vanish() -> None:
    a = torch.tensor([[1000.0], [-1000.0]])
    exact = [1e6 + math.log1p(math.exp(-2e6)), 1e6]
    assert pairwise_logsumexp(a, a, "dot").tolist() == pytest.approx(exact)
    far = torch.tensor([[0.0], [1e4]])
    assert pairwise_logsumexp(far, far, "sqeuclidean", exclude_diagonal=True).tolist() == pytest.approx([-1e8, -1e8])


@pytest.mark.parametrize("exclude_diagonal", [False, True])
@every_similarity
def test_gradients_in_points_scale_and_exponent_pass_gradcheck(similarity: Similarity, exclude_diagonal: bool) -> None:
    def of_parameters(a: Tensor, b: Tensor, scale: Tensor, *p: Tensor) -> Tensor:
        learnt: Similarity = ("lp", p[0]) if p else similarity
        return pairwise_logsumexp(a, b, learnt, scale, exclude_diagonal)

    a, b = doubles(4, 3).requires_grad_(), doubles(5, 3).requires_grad_()
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert gradcheck(of_parameters, (a, b, scale))
    if isinstance(similarity, tuple):
        p = torch.tensor(similarity[1], dtype=torch.float64, requires_grad=True)
        assert gradcheck(of_parameters, (a, b, scale, p))


@every_similarity
def test_a_tensor_against_itself_passes_gradcheck(similarity: Similarity) -> None:
    a = doubles(4, 3).requires_grad_()
    for exclude_diagonal in (False, True):
        assert gradcheck(lambda x, exclude=exclude_diagonal: pairwise_logsumexp(x, x, similarity, 0.7, exclude), (a,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@every_similarity
def test_values_come_in_float32_or_better(similarity: Similarity, dtype: torch.dtype) -> None:
    a, b = torch.randn(6, 8).to(dtype).requires_grad_(), torch.randn(7, 8).to(dtype).requires_grad_()
    value = pairwise_logsumexp(a, b, similarity, 0.1)
    exact = pairwise_logsumexp(a.double(), b.double(), similarity, 0.1)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5)
    eps = torch.finfo(dtype).eps
    gradients, truths = torch.autograd.grad(value.sum(), (a, b)), torch.autograd.grad(exact.sum(), (a, b))
    for gradient, true in zip(gradients, truths, strict=True):
        torch.testing.assert_close(gradient.double(), true.double(), rtol=16 * eps, atol=4 * eps)


def test_mixed_precision_takes_the_wider_dtype() -> None:
    a, b = torch.randn(4, 3).half(), torch.randn(5, 3, dtype=torch.float64)
    assert pairwise_logsumexp(a, b, "dot").dtype == torch.float64
    assert pairwise_logsumexp(a, b.bfloat16(), "dot").dtype == torch.float32


@every_similarity
def test_autocast_changes_neither_value_nor_gradient(similarity: Similarity) -> None:
    a, b = torch.randn(16, 8, requires_grad=True), torch.randn(16, 8)
    outside = pairwise_logsumexp(a, b, similarity, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = pairwise_logsumexp(a, b, similarity, 0.1)
    torch.testing.assert_close(inside, outside, rtol=0, atol=0)
    (gradient,), (exact,) = torch.autograd.grad(inside.sum(), a), torch.autograd.grad(outside.sum(), a)
    torch.testing.assert_close(gradient, exact, rtol=0, atol=0)


@pytest.mark.parametrize("k", [10, 60])
@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_kernels_of_close_points_far_from_the_origin_are_right_in_float32(similarity: Similarity, k: int) -> None:
    a = torch.randn(k, 3) + 1000
    b = a + 0.05 * torch.randn(k, 3)
    exact = by_hand(a.double(), b.double(), similarity, 5.0, False)
    torch.testing.assert_close(pairwise_logsumexp(a, b, similarity, 5.0).double(), exact, rtol=1e-4, atol=1e-4)
