import math

import pytest
import torch
from torch import Tensor

from entrec.pairwise import Similarity, dense

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
    torch.testing.assert_close(dense.all_similarities(a, b, similarity), torch.tensor(exact, dtype=torch.float64))


@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_matching_rows_are_the_diagonal_of_the_matrix(similarity: Similarity) -> None:
    a, b = doubles(2, 6, 3)
    diagonal = dense.all_similarities(a, b, similarity).diagonal()
    torch.testing.assert_close(dense.similarity_of_difference(a - b, similarity), diagonal)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0])
def test_an_exponent_may_be_a_tensor(p: float) -> None:
    a, b = doubles(30, 3), doubles(40, 3)
    learnt: Similarity = ("lp", torch.tensor(p, dtype=torch.float64))
    fixed: Similarity = ("lp", p)
    torch.testing.assert_close(dense.all_similarities(a, b, learnt), dense.all_similarities(a, b, fixed))
    x = a - b[:30]
    torch.testing.assert_close(dense.similarity_of_difference(x, learnt), dense.similarity_of_difference(x, fixed))


@pytest.mark.parametrize("k", [10, 60])  # a distance matrix may take another way for many points
@pytest.mark.parametrize("offset", [1e2, 1e4])
@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_distances_of_close_points_far_from_the_origin_keep_their_digits(similarity: Similarity, offset: float, k: int) -> None:
    a = torch.randn(k, 3) + offset
    b = a + 0.05 * torch.randn(k, 3)
    exact = [[by_hand(x, y, similarity) for y in b.double().tolist()] for x in a.double().tolist()]
    value = dense.all_similarities(a, b, similarity).double()
    torch.testing.assert_close(value, torch.tensor(exact, dtype=torch.float64), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_distances_within_clusters_keep_their_digits_where_no_origin_is_near_all_of_them(similarity: Similarity) -> None:
    centres = 1000 * torch.tensor([[1.0], [-1.0]]).repeat(20, 3)
    a = centres + torch.randn(40, 3)
    b = a + 0.05 * torch.randn(40, 3)
    exact = [[by_hand(x, y, similarity) for y in b.double().tolist()] for x in a.double().tolist()]
    value = dense.all_similarities(a, b, similarity).double()
    torch.testing.assert_close(value, torch.tensor(exact, dtype=torch.float64), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("k", [10, 60])
@pytest.mark.parametrize("similarity", EVERY_SIMILARITY[1:], ids=str)
def test_no_point_is_at_a_distance_from_itself(similarity: Similarity, k: int) -> None:
    a = torch.randn(k, 3) + 100
    assert dense.all_similarities(a, a, similarity).diagonal().abs().max().item() <= 1e-6
    assert dense.similarity_of_difference(a - a, similarity).abs().max().item() == 0.0


@pytest.mark.parametrize("exclude_diagonal", [False, True])
@every_similarity
def test_rows_in_blocks_without_a_graph_equal_the_whole_matrix_with_one(
    similarity: Similarity, exclude_diagonal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = doubles(3, 7, 4), doubles(3, 5, 4)
    with_graph = dense.logsumexp(a.clone().requires_grad_(), b, similarity, 0.8, exclude_diagonal)
    assert with_graph.requires_grad
    for entries in (1, 40, 100):  # one row, two rows, and all but the last rows at a time
        monkeypatch.setitem(dense._ENTRIES_AT_ONCE, "cpu", entries)
        torch.testing.assert_close(dense.logsumexp(a, b, similarity, 0.8, exclude_diagonal), with_graph.detach())
        with torch.no_grad():
            blocks = dense.logsumexp(a.clone().requires_grad_(), b, similarity, 0.8, exclude_diagonal)
        torch.testing.assert_close(blocks, with_graph.detach())


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0])
def test_coincident_points_and_coordinates_have_finite_gradients(p: float) -> None:
    a = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    exponent = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(dense.all_similarities(a, a, ("lp", p)).sum(), a)
    assert torch.isfinite(gradient).all()
    for gradient in torch.autograd.grad(dense.all_similarities(a, a, ("lp", exponent)).sum(), (a, exponent)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_exponents_in_many_dimensions_stay_finite(dtype: torch.dtype) -> None:
    a, b = torch.zeros(2, 100, dtype=dtype), torch.ones(2, 100, dtype=dtype)
    assert dense.all_similarities(a, b, ("lp", 0.05)).flatten().tolist() == pytest.approx([-100.0] * 4, rel=1e-5)


def test_large_exponents_of_small_differences_do_not_vanish() -> None:
    a = torch.zeros(1, 2)
    b = torch.tensor([[0.5, 0.25]])
    exact = -(0.5**120)  # 0.25^120 adds nothing to it
    assert dense.all_similarities(a, b, ("lp", 120.0)).item() == pytest.approx(exact, rel=1e-4)
    assert math.isfinite(dense.logsumexp(a, b, ("lp", 120.0), 1.0, exclude_diagonal=False).item())
