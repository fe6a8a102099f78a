"""Laws of batches: what is seen, how often, by whom, and from where on."""

from typing import Any

import pytest
import torch

from entrec.data import Batches, Draw, in_order


def epoch(batches: Batches, number: int = 0, start: int = 0) -> list[list[Draw]]:
    batches.set_epoch(number)
    batches.set_start(start)
    return list(batches)


def places(batches: list[list[Draw]]) -> list[int]:
    return [place for batch in batches for place, _ in batch]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(("n", "batch_size"), [(24, 4), (29, 4), (25, 8), (7, 2)])
@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_share_a_permutation(n: int, batch_size: int, ranks: int, drop_last: bool) -> None:
    of_ranks = [epoch(Batches(n, batch_size, 5, rank, ranks, drop_last), 2) for rank in range(ranks)]
    assert len({len(batches) for batches in of_ranks}) == 1  # a rank with more would wait for the others for ever
    seen = [place for batches in of_ranks for place in places(batches)]
    assert len(seen) == len(set(seen))
    whole = n - n % (batch_size * ranks)
    rest = n - whole
    assert len(seen) == (n if not drop_last and rest >= ranks else whole)
    sizes = {len(batch) for batches in of_ranks for batch in batches[: whole // (batch_size * ranks)]}
    assert sizes == {batch_size}
    last = [len(batches[-1]) for batches in of_ranks]
    assert max(last) - min(last) <= 1
    assert min(last) > 0


def test_ranks_together_see_the_batches_of_one() -> None:
    one = epoch(Batches(40, 8, 1))
    two = [epoch(Batches(40, 4, 1, rank, 2)) for rank in range(2)]
    assert [first + second for first, second in zip(*two, strict=True)] == one


def test_resuming_gives_the_tail_of_the_epoch() -> None:
    batches = Batches(50, 4, 7)
    whole = epoch(batches, 3)
    for start in range(len(whole) + 1):
        assert epoch(Batches(50, 4, 7), 3, start) == whole[start:]
    batches.set_start(5)
    assert len(batches) == len(whole) - 5
    assert batches.per_epoch == len(whole)
    batches.set_epoch(4)  # begins at the beginning
    assert len(batches) == len(whole)


def test_epochs_and_seeds_have_orders_and_draws_of_their_own() -> None:
    first = epoch(Batches(64, 8, 0), 0)
    assert first == epoch(Batches(64, 8, 0), 0)
    others = [epoch(Batches(64, 8, seed), number) for seed, number in ((0, 1), (1, 0), (1, 1))]
    assert all(other != first for other in others)
    seeds = [{seed for batch in batches for _, seed in batch} for batches in [first, *others]]
    assert len(set.union(*seeds)) == 4 * 64  # every draw is another one


def test_the_global_generators_have_no_say() -> None:
    torch.manual_seed(1)
    first = epoch(Batches(32, 4, 0))
    torch.manual_seed(2)
    assert epoch(Batches(32, 4, 0)) == first


def test_weights_are_the_frequencies_of_draws() -> None:
    weights = torch.tensor([0.0, 1.0, 2.0, 5.0, 0.0]).repeat(2000)
    batches = Batches(len(weights), 100, 0, weights=weights)
    drawn = torch.tensor(places(epoch(batches)))
    counts = torch.bincount(drawn % 5, minlength=5).double()
    expected = torch.tensor([0.0, 1.0, 2.0, 5.0, 0.0]).double() / 8 * len(drawn)
    assert counts[0] == counts[4] == 0
    assert ((counts - expected).square() / expected.clamp(min=1)).sum() < 20  # chi-squared with 2 degrees of freedom
    batches.set_weights(None)
    assert sorted(places(epoch(batches))) == list(range(len(weights)))


def test_evaluation_goes_in_order_and_leaves_nothing_out() -> None:
    assert [[place for place, _ in batch] for batch in in_order(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert in_order(0, 3) == []


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n": 3, "batch_size": 4}, "batch_size=4 is more than the data set's 3 images"),
        ({"n": 7, "batch_size": 4, "ranks": 2}, "batch_size=4 on each of 2 ranks is more"),
        ({"n": 8, "batch_size": 0}, "batch_size must be at least 1"),
        ({"n": 8, "batch_size": 2, "rank": 2, "ranks": 2}, "rank must be below ranks=2"),
        ({"n": 8, "batch_size": 2, "weights": torch.ones(7)}, r"weights must have shape \(8,\)"),
        ({"n": 2, "batch_size": 2, "weights": torch.tensor([1.0, -1.0])}, "not negative"),
        ({"n": 2, "batch_size": 2, "weights": torch.zeros(2)}, "not all zero"),
        ({"n": 2, "batch_size": 2, "weights": torch.tensor([1.0, float("nan")])}, "finite"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Batches(seed=0, **arguments)


def test_one_cannot_start_after_the_end() -> None:
    with pytest.raises(ValueError, match="at most 2"):
        Batches(8, 4, 0).set_start(3)


def test_epochs_follow_each_other_where_they_are_to() -> None:
    batches = Batches(20, 4, 3, until=4)
    batches.set_epoch(1)
    batches.set_start(3)
    assert list(batches) == [*epoch(Batches(20, 4, 3), 1, 3), *epoch(Batches(20, 4, 3), 2), *epoch(Batches(20, 4, 3), 3)]
    assert len(batches) == 2  # of the epoch that was asked for
    batches.set_weights(torch.ones(20))  # which another epoch will have others of
    assert len(list(batches)) == 2


def test_what_is_set_later_changes_nothing_of_what_has_begun() -> None:
    batches = Batches(20, 4, 3, until=2)
    begun = iter(batches)
    first = next(begun)
    batches.set_epoch(1)
    batches.set_weights(torch.ones(20))
    assert [first, *begun] == [*epoch(Batches(20, 4, 3), 0), *epoch(Batches(20, 4, 3), 1)]
