import math

import pytest
import torch
from torch import Tensor

from entrec import pairwise_logsumexp
from entrec.pairwise import Similarity
from entrec.pairwise.similarity import all_similarities, similarity_of_difference

EVERY_SIMILARITY: list[Similarity] = ["dot", "sqeuclidean", "l1", ("lp", 0.5), ("lp", 1.5), ("lp", 2.0), ("lp", 3.0)]
every_similarity = pytest.mark.parametrize("similarity", EVERY_SIMILARITY, ids=str)


def by_hand(a: list[float], b: list[float], similarity: Similarity) -> float:
    if similarity == "dot":
        return sum(x * y for x, y in zip(a, b, strict=True))
    power = {"sqeuclidean": 2.0, "l1": 1.0}[similarity] if isinstance(similarity, str) else float(similarity[1])
    return -math.fsum(abs(x - y) ** power for x, y in zip(a, b, strict=True))


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@every_similarity
def test_matrix_holds_the_similarity_of_every_pair(similarity: Similarity) -> None:
    a, b = doubles(4, 3), doubles(5, 3)
    exact = [[by_hand(x, y, similarity) for y in b.tolist()] for x in a.tolist()]
    torch.testing.assert_close(all_similarities(a, b, similarity), torch.tensor(exact, dtype=torch.float64))


@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_matching_rows_are_the_diagonal_of_the_matrix(similarity: Similarity) -> None:
    a, b = doubles(2, 6, 3)
    diagonal = all_similarities(a, b, similarity).diagonal()
    torch.testing.assert_close(similarity_of_difference(a - b, similarity), diagonal)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0])
def test_an_exponent_may_be_a_tensor(p: float) -> None:
    a, b = doubles(30, 3), doubles(40, 3)
    learnt: Similarity = ("lp", torch.tensor(p, dtype=torch.float64))
    fixed: Similarity = ("lp", p)
    torch.testing.assert_close(all_similarities(a, b, learnt), all_similarities(a, b, fixed))
    x = a - b[:30]
    torch.testing.assert_close(similarity_of_difference(x, learnt), similarity_of_difference(x, fixed))


@pytest.mark.parametrize("k", [10, 60])  # a distance matrix may take another way for many points
@pytest.mark.parametrize("offset", [1e2, 1e4])
@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_distances_of_close_points_far_from_the_origin_keep_their_digits(similarity: Similarity, offset: float, k: int) -> None:
    a = torch.randn(k, 3) + offset
    b = a + 0.05 * torch.randn(k, 3)
    exact = [[by_hand(x, y, similarity) for y in b.double().tolist()] for x in a.double().tolist()]
    value = all_similarities(a, b, similarity).double()
    torch.testing.assert_close(value, torch.tensor(exact, dtype=torch.float64), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_distances_within_clusters_keep_their_digits_where_no_origin_is_near_all_of_them(similarity: Similarity) -> None:
    centres = 1000 * torch.tensor([[1.0], [-1.0]]).repeat(20, 3)
    a = centres + torch.randn(40, 3)
    b = a + 0.05 * torch.randn(40, 3)
    exact = [[by_hand(x, y, similarity) for y in b.double().tolist()] for x in a.double().tolist()]
    value = all_similarities(a, b, similarity).double()
    torch.testing.assert_close(value, torch.tensor(exact, dtype=torch.float64), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("k", [10, 60])
@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_no_point_is_at_a_distance_from_itself(similarity: Similarity, k: int) -> None:
    a = torch.randn(k, 3) + 100
    assert all_similarities(a, a, similarity).diagonal().abs().max().item() <= 1e-6
    assert similarity_of_difference(a - a, similarity).abs().max().item() == 0.0


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0])
def test_coincident_points_and_coordinates_have_finite_gradients(p: float) -> None:
    a = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    exponent = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(all_similarities(a, a, ("lp", p)).sum(), a)
    assert torch.isfinite(gradient).all()
    for gradient in torch.autograd.grad(all_similarities(a, a, ("lp", exponent)).sum(), (a, exponent)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_exponents_in_many_dimensions_stay_finite(dtype: torch.dtype) -> None:
    a, b = torch.zeros(2, 100, dtype=dtype), torch.ones(2, 100, dtype=dtype)
    assert all_similarities(a, b, ("lp", 0.05)).flatten().tolist() == pytest.approx([-100.0] * 4, rel=1e-5)


def test_large_exponents_of_small_differences_do_not_vanish() -> None:
    a = torch.zeros(1, 2)
    b = torch.tensor([[0.5, 0.25]])
    exact = -(0.5**120)  # 0.25^120 adds nothing to it
    assert all_similarities(a, b, ("lp", 120.0)).item() == pytest.approx(exact, rel=1e-4)
    assert math.isfinite(pairwise_logsumexp(a, b, ("lp", 120.0)).item())
