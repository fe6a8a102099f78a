"""What a run's looks through the lens conclude, from nothing but what was noted of them."""

from collections.abc import Sequence

import pytest

from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.looks import Looks, Noted, best, hopeless
from entrec.training.settings import settings
from tests.training.tiny import COMMON, HEADS, source


def looks(*of: tuple[str, float | None]) -> list[Noted]:
    return [(number + 1, name, bound) for number, (name, bound) in enumerate(of)]


def looks_of(noted: Sequence[Noted], **given: object) -> Looks:
    wanted = settings("byol", {**COMMON, **HEADS["byol"], **given})
    found = Looks(fabric_for(wanted), assemble(wanted, source()), steps=3)
    found.noted = list(noted)
    return found


POINT, BROKEN = ("collapsed", 0.0), ("diverging", None)


@pytest.mark.parametrize(
    ("noted", "failed"),
    [
        ([], False),
        ([POINT], False),
        ([POINT, POINT], True),
        ([POINT, BROKEN], True),
        ([BROKEN, BROKEN], True),
        ([POINT, ("healthy", 1.0)], False),
        ([("healthy", 1.0), POINT], False),
        ([("early", 0.0), POINT], False),
        ([("low rank", 0.0), ("low rank", 0.0)], False),  # it may learn with few directions
        ([POINT, ("collapsed", 0.009)], True),
        ([POINT, ("collapsed", 0.011)], False),  # it rises again
        ([POINT, POINT, ("weak", 0.1), POINT], False),
    ],
)
def test_two_bad_looks_without_a_rise_are_hopeless(noted: list[tuple[str, float | None]], failed: bool) -> None:
    assert hopeless(looks(*noted)) is failed


def test_in_the_warm_up_nothing_has_failed() -> None:
    twice = looks(POINT, POINT)  # after the first epoch of ten, and after the second
    assert looks_of(twice, epochs=10, warmup=0.1).failed
    assert not looks_of(twice, epochs=10, warmup=0.11).failed


@pytest.mark.parametrize(
    ("noted", "number"),
    [
        ([], None),
        ([BROKEN], None),
        ([("weak", 0.1), ("healthy", 0.3), ("healthy", 0.2)], 1),
        ([("healthy", 0.3), ("healthy", 0.3)], 0),
        ([POINT, ("healthy", -0.5)], 1),
        ([("early", 0.0), ("healthy", -0.5)], 1),
        ([POINT, ("low rank", 0.4), BROKEN], 1),  # where all have failed, the highest
    ],
)
def test_the_best_look_has_the_highest_bound_of_those_that_saw_no_failure(
    noted: list[tuple[str, float | None]], number: int | None
) -> None:
    assert best(looks(*noted)) == number


def test_the_newest_is_best_only_where_it_is_higher_than_all_before() -> None:
    rising = looks(("weak", 0.1), ("healthy", 0.3))
    assert looks_of(rising).newest_is_best
    assert not looks_of([*rising, (3, "healthy", 0.3)]).newest_is_best
    assert not looks_of([]).newest_is_best


def test_a_run_is_stale_after_as_many_looks_without_a_better_one_as_it_is_to_wait() -> None:
    noted = looks(("healthy", 0.3), ("healthy", 0.2), ("healthy", 0.1))
    assert not looks_of(noted[:2], patience=2).stale
    assert looks_of(noted, patience=2).stale
    assert not looks_of(noted, patience=3).stale
    assert not looks_of(noted).stale
