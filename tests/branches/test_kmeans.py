import sys
from typing import get_args

import pytest
import torch
from torch import Tensor

from entrec.branches import kmeans, optimal_transport_labels
from entrec.branches.kmeans import Seeding
from tests.memory import Largest


def blobs(clusters: int = 5, each: int = 30, dim: int = 8) -> tuple[Tensor, Tensor]:
    centres = 5 * torch.randn(clusters, dim)
    labels = torch.arange(clusters).repeat_interleave(each)
    return centres[labels] + 0.3 * torch.randn(clusters * each, dim), labels


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same_partition(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a[:, None] == a[None, :], b[:, None] == b[None, :])


@pytest.mark.parametrize("spherical", [False, True])
def test_separate_blobs_are_found(spherical: bool) -> None:
    x, truth = blobs()
    found = kmeans(x, 5, generator=seeded(), spherical=spherical)
    assert same_partition(found.labels, truth)
    assert found.sizes.tolist() == [30] * 5


def test_from_the_same_start_it_is_scikit_learns() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    x = torch.randn(300, 6, dtype=torch.float64)
    start = x[:9]
    for iterations in (1, 3, 200):
        theirs = cluster.KMeans(9, init=start.numpy(), n_init=1, max_iter=iterations, tol=0.0, algorithm="lloyd").fit(x.numpy())
        ours = kmeans(x, 9, iterations, spherical=False, start=start)
        torch.testing.assert_close(ours.centres, torch.from_numpy(theirs.cluster_centers_), rtol=1e-9, atol=1e-9)
        assert torch.equal(ours.labels, torch.from_numpy(theirs.labels_).long())
        assert ours.objective[-1].item() * len(x) == pytest.approx(theirs.inertia_, rel=1e-9)


@pytest.mark.parametrize("spherical", [False, True])
@pytest.mark.parametrize("seeding", get_args(Seeding))
def test_the_objective_never_rises_and_is_that_of_labels_and_centres(spherical: bool, seeding: Seeding) -> None:
    x = torch.randn(400, 5, dtype=torch.float64)
    found = kmeans(x, 20, 30, seeded(), spherical, seeding=seeding)
    assert len(found.objective) > 3
    assert (found.objective.diff() <= 1e-12).all()
    points = x / x.norm(dim=1, keepdim=True) if spherical else x
    distances = torch.cdist(points, found.centres)
    assert torch.equal(distances.argmin(dim=1), found.labels)
    torch.testing.assert_close(distances.amin(dim=1).square().mean(), found.objective[-1])
    assert torch.equal(torch.bincount(found.labels, minlength=20), found.sizes)


def test_spherical_centres_are_the_directions_of_their_rows_sums() -> None:
    x = torch.randn(200, 4, dtype=torch.float64)
    found = kmeans(x, 6, 100, seeded())
    units = x / x.norm(dim=1, keepdim=True)
    for c in range(6):
        total = units[found.labels == c].sum(dim=0)
        torch.testing.assert_close(found.centres[c], total / total.norm())
    torch.testing.assert_close(kmeans(x * torch.rand(200, 1), 6, 100, seeded()).centres, found.centres)


def test_empty_clusters_split_the_largest_at_its_farthest_rows() -> None:
    x = torch.tensor([[0.0], [1.0], [2.0], [9.0], [20.0], [21.0]])
    start = torch.tensor([[3.0], [20.5], [100.0], [200.0]])  # the last two win no row
    found = kmeans(x, 4, 1, spherical=False, start=start)
    # Row 3 (at 9) lies farthest from 3; with the first cluster halved to 2, the next is again its farthest row left, at 0.
    assert found.sizes.tolist() == [1, 2, 1, 2]  # and it takes the row at 1 along
    assert found.centres[2].item() == 9.0
    assert found.centres[3].item() == 0.0
    assert (found.objective.diff() <= 0).all()
    assert (kmeans(x, 4, 20, spherical=False, start=start).sizes > 0).all()


def test_no_cluster_is_empty_even_where_all_start_at_one_place() -> None:
    x = torch.randn(100, 3)
    found = kmeans(x, 10, 30, spherical=False, start=torch.zeros(10, 3))
    assert (found.sizes > 0).all()
    assert (found.objective.diff() <= 1e-6).all()


def test_fewer_different_rows_than_clusters_leave_some_empty_and_nothing_breaks() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(5, 1)
    for seeding in get_args(Seeding):
        found = kmeans(x, 4, 5, seeded(), seeding=seeding)
        assert found.objective[-1].item() == 0.0
        assert found.sizes.sum() == 10
        assert torch.isfinite(found.centres).all()


def test_k_means_plus_plus_draws_in_proportion_to_squared_distance() -> None:
    x = torch.tensor([[0.0], [1.0], [3.0]])  # from 0: 1/10 and 9/10; from 1: 1/5 and 4/5; from 3: 9/13 and 4/13
    counts: dict[tuple[float, float], int] = {}
    n = 3000
    generator = seeded(3)
    for _ in range(n):
        first, second = kmeans(x, 2, 0, generator, spherical=False).centres.flatten().tolist()
        counts[first, second] = counts.get((first, second), 0) + 1
    exact = {(0, 1): 1 / 30, (0, 3): 9 / 30, (1, 0): 1 / 15, (1, 3): 4 / 15, (3, 0): 9 / 39, (3, 1): 4 / 39}
    assert counts.keys() == exact.keys()
    for pair, p in exact.items():
        assert abs(counts[pair] / n - p) < 4 * (p * (1 - p) / n) ** 0.5


def test_the_same_generator_gives_the_same_clusters() -> None:
    x = torch.randn(200, 4)
    a, b, other = (kmeans(x, 8, 10, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(a.labels, b.labels)
    assert torch.equal(a.centres, b.centres)
    assert not torch.equal(a.centres, other.centres)


def test_memory_stays_below_rows_times_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["entrec.branches.kmeans"], "_ELEMENTS", 2000)
    x = torch.randn(1000, 4)
    with Largest() as watch:
        found = kmeans(x, 50, 3, seeded())
    assert watch.elements <= 4000
    whole = kmeans(x, 50, 3, seeded())
    assert torch.equal(found.labels, whole.labels)


def test_half_precision_is_clustered_in_full() -> None:
    x, truth = blobs()
    found = kmeans(x.half(), 5, generator=seeded())
    assert found.centres.dtype == torch.float32
    assert same_partition(found.labels, truth)


def test_optimal_transport_shares_the_rows_out() -> None:
    scores = torch.randn(120, 6)
    scores[:, 0] += 3  # the nearest centre of nearly all
    labels = optimal_transport_labels(scores, epsilon=0.1)
    assert labels.dtype == torch.int64
    assert torch.bincount(scores.argmax(dim=1), minlength=6)[0] > 80
    assert torch.bincount(labels, minlength=6).sub(20).abs().max() <= 6
    balanced = torch.eye(6).repeat(4, 1)
    assert torch.equal(optimal_transport_labels(balanced), balanced.argmax(dim=1))


def test_bad_input_is_refused() -> None:
    x = torch.randn(4, 2)
    with pytest.raises(ValueError, match="x must have at least 5 rows for 5 clusters"):
        kmeans(x, 5)
    with pytest.raises(ValueError, match="seeding must be one of 'k-means"):
        kmeans(x, 2, seeding="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"start must have shape \(2, 2\), got \(3, 2\)"):
        kmeans(x, 2, start=x[:3])
