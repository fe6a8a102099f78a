"""Means, deviations, differences, and the words that follow from them."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from entrec.paper.grid.claims import Claim, Part, State, above, alike, at_most, both, either, judged, over, smaller_drop
from entrec.paper.grid.measured import Measured


def of(*values: float, diverged: tuple[int, ...] = (), broken: tuple[int, ...] = ()) -> Measured:
    return Measured(dict(enumerate(values)), frozenset(diverged), dict.fromkeys(broken, "OSError: no room"))


def test_means_and_deviations_over_seeds() -> None:
    found = of(70.0, 71.0, 75.0)
    assert found.mean == 72.0
    assert found.deviation == pytest.approx(math.sqrt(7.0))  # (4 + 1 + 9) / 2
    assert found.error == pytest.approx(math.sqrt(7.0 / 3))
    assert found.shown(2, beside=75.59) == "72.00 ± 2.65 (3) [75.59]"
    assert of(70.0).shown() == "70.0"
    assert of().shown(beside=1.0) == "not run [1.00]"
    assert of(diverged=(0,), broken=(1,)).shown() == "failed in 2 of 2"
    assert of(1.0, broken=(1,)).shown(sign=True) == "+1.0, failed in 1 of 2"


def test_differences_are_of_the_same_seeds() -> None:
    found = Measured({0: 10.0, 1: 20.0, 2: 99.0}) - Measured({0: 9.0, 1: 18.0, 3: 0.0})
    assert found.by_seed == {0: 1.0, 1: 2.0}
    assert found.deviation == pytest.approx(math.sqrt(0.5))


def test_a_difference_has_failed_where_the_variation_was_run_and_either_failed() -> None:
    base = of(70.0, 71.0, diverged=(2,), broken=(3,))
    assert (base - of()).shown() == "not run"
    assert (base - of(60.0)).shown() == "10.0"
    assert (base - of(60.0, diverged=(2,))).shown() == "10.0, failed in 1 of 2"  # the seed once, though both failed
    assert (base - Measured({3: 60.0})).shown() == "failed in 1 of 1"
    both_ways = base - of(60.0, broken=(2,))
    assert (both_ways.diverged, set(both_ways.broken)) == (frozenset(), {2})


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ((0.1,), "so"),
        ((-0.1,), "not so"),
        ((0.0,), "not so"),
        ((2.0, 3.0, 4.0), "so"),  # 3 against 4.30 x 0.577 = 2.48
        ((1.0, 2.0, 3.0), "not decided"),  # 2 against 2.48, though it is over two standard errors
        ((-2.0, -3.0, -4.0), "not so"),
        ((1.0, 1.1), "so"),  # 1.05 against 12.7 x 0.05 = 0.64
        ((1.0, 1.2), "not decided"),  # 1.1 against 1.27
    ],
)
def test_over_is_with_95_percent_confidence_where_seeds_tell_it(values: tuple[float, ...], state: State) -> None:
    assert over(of(*values)) == state
    difference = of(*(70 + x for x in values)) - of(*[70.0] * len(values))
    assert above("x", difference, "") == Part("x", state if len(values) > 1 else "not decided", "", len(values))


@pytest.mark.parametrize("seeds", [2, 3, 5, 30])
def test_the_margin_is_that_of_scipys_confidence_interval(seeds: int) -> None:
    values = np.random.default_rng(seeds).normal(3.0, 2.0, seeds)
    interval = ttest_1samp(values, 0.0).confidence_interval(0.95)
    found = of(*values)
    assert (found.mean - found.margin, found.mean + found.margin) == pytest.approx((interval.low, interval.high))


def test_the_margin_holds_the_truth_as_often_as_it_says() -> None:
    # Of 4,000 draws of two seeds, 95 % ± 4 x 0.34 %; two standard errors would hold it in 70 %.
    draws = np.random.default_rng(0).normal(size=(4000, 2))
    within = sum(abs(found.mean) <= found.margin for found in (of(*draw) for draw in draws)) / len(draws)
    assert within == pytest.approx(0.95, abs=0.014)


def test_a_single_run_has_no_margin_of_its_own_and_a_difference_of_two_has_no_end() -> None:
    assert of(70.0).margin == 0.0
    assert (of(70.0) - of(60.0)).margin == math.inf
    assert of().margin == 0.0


@pytest.mark.parametrize("points", [-50.0, -0.1, 0.0, 0.1, 50.0])
def test_a_single_seed_decides_no_difference_between_runs_and_its_number_is_shown(points: float) -> None:
    base, other = of(70.0), of(70.0 - points)
    difference = base - other
    assert {over(difference), over(-difference), at_most(difference, 1.0), at_most(-difference, 1.0)} == {"not decided"}
    for part in (
        above("x", difference, difference.shown(2)),
        alike("x", base, other, 1.0),
        smaller_drop("x", (base, other), (base, base)),
    ):
        assert (part.state, part.seeds) == ("not decided", 1)
        assert f"{difference.mean:.2f}".lstrip("-") in part.numbers
        assert Claim("It is so", [part]).word == "not decided (1 seed)"


def test_a_single_seed_that_two_settings_share_is_one_however_many_each_has() -> None:
    difference = Measured({0: 70.0, 1: 71.0}) - Measured({1: 60.0, 2: 61.0})
    assert above("x", difference, "").state == "not decided"


def test_two_seeds_decide_where_they_agree() -> None:
    assert above("x", of(70.0, 71.0) - of(60.0, 61.5), "") == Part("x", "so", "", 2)  # 9.75 against 12.7 x 0.25
    assert above("x", of(70.0, 71.0) - of(60.0, 71.5), "").state == "not decided"


def test_what_does_not_rise_is_not_shown_by_noise() -> None:
    assert at_most(of(5.0, 0.1, 0.1), 0.1) == "not decided"
    assert at_most(of(0.0, 0.02, 0.01), 0.1) == "so"
    assert at_most(of(1.0, 1.1, 0.9), 0.1) == "not so"


def test_states_together() -> None:
    assert both("so", "so") == "so"
    assert both("so", "not decided") == "not decided"
    assert both("not decided", "not so") == "not so"
    assert either("not so", "so") == "so"
    assert either("not so", "not decided") == "not decided"
    assert either("not so", "not so") == "not so"


@pytest.mark.parametrize(
    ("states", "word"),
    [
        (("so", "so"), "holds"),
        (("so", "not so"), "holds in part"),
        (("so", "not run"), "holds in part"),
        (("so", "failed"), "holds in part"),
        (("so", "not decided"), "holds in part"),
        (("not so", "not so"), "does not hold here"),
        (("not so", "not run"), "does not hold here"),
        (("not so", "not decided"), "does not hold in part"),
        (("not decided", "not run"), "not decided"),
        (("failed", "not run"), "failed"),
        (("not run", "not run"), "not run"),
    ],
)
def test_the_word_of_a_claim(states: tuple[State, ...], word: str) -> None:
    assert Claim("It is so", [Part("a", state, "1", 3) for state in states]).word == word
    assert Claim("It is so", [Part("a", state) for state in states]).word == word  # no run is needed for it


def test_a_word_says_how_few_seeds_speak() -> None:
    def word(*seeds: int) -> str:
        return Claim("It is so", [Part("a", "so", "1", n) for n in seeds]).word

    assert [word(1), word(2), word(3), word(5)] == ["holds (1 seed)", "holds (2 seeds)", "holds", "holds"]
    assert word(3, 1) == "holds (1 seed)"
    assert Claim("It is so", [Part("a", "not decided", "1", n) for n in (2, 1)]).word == "not decided (1 seed)"
    # Seeds of a part that is not decided decide nothing.
    assert Claim("It is so", [Part("a", "so", "1", 3), Part("b", "not decided", "2", 1)]).word == "holds in part"


def test_a_part_that_was_not_run_has_no_numbers_and_one_that_failed_has_its_reason() -> None:
    found = Claim("It is so", [Part("BYOL", "so", "3", 3), Part("DINO", "not run"), above("IR", of(broken=(0,)), "nan")])
    assert found.numbers == "BYOL: 3; DINO: not run; IR: failed: OSError: no room"


def test_parts_say_their_states_where_these_differ() -> None:
    assert Claim("It is so", [Part("a", "so", "1", 3), Part("b", "so", "2", 3)]).numbers == "a: 1; b: 2"
    mixed = Claim("It is so", [Part("a", "not so", "1", 3), Part("b", "not decided", "2", 3)])
    assert mixed.numbers == "a (not so): 1; b (not decided): 2"
    assert Claim("x", [Part("a", "failed", "failed: a | b")]).markdown() == r"| x | **failed** | a: failed: a \| b |"


def test_runs_that_diverged_may_speak_and_broken_ones_never_do() -> None:
    assert judged("x", of(1.0, diverged=(1,)), "so", "1", diverged="not so").state == "not so"
    assert judged("x", of(diverged=(0,)), "so", "1", diverged="not so").state == "not so"
    assert judged("x", of(1.0, broken=(1,)), "so", "1", diverged="not so") == Part("x", "so", "1", 1)
    assert judged("x", of(diverged=(0,)), "so", "1").state == "failed"


def test_a_smaller_drop() -> None:
    base, er = of(80.0, 81.0, 82.0), (of(79.0, 80.0, 81.0), of(75.0, 75.5, 77.5))
    found = smaller_drop("BYOL", (base, of(60.0, 61.0, 62.0)), er)
    assert found.numbers == "20.00 ± 0.00 (3) without, 4.00 ± 0.50 (3) with ER, 16.00 ± 0.50 (3) less"
    assert (found.state, found.seeds) == ("so", 3)
    assert smaller_drop("BYOL", (base, of(79.0, 80.0, 81.0)), er).state == "not so"
    assert smaller_drop("BYOL", (base, of(75.0, 78.5, 77.0)), er).state == "not decided"
    assert smaller_drop("BYOL", (base, of()), er).state == "not run"


def test_an_original_that_diverges_speaks_for_er_and_er_against_itself() -> None:
    own, er = (of(80.0), of(60.0)), (of(79.0), of(75.0))
    found = smaller_drop("BYOL", (own[0], of(diverged=(0,))), er)
    assert (found.state, found.seeds) == ("so", 1)
    assert found.numbers.endswith("the original diverged")
    assert smaller_drop("BYOL", own, (er[0], of(diverged=(0,)))).state == "not so"
    # In most seeds: the one that is left does not make it hold.
    assert smaller_drop("BYOL", own, (er[0], of(75.0, diverged=(1, 2)))).state == "not so"
    # Of another seed than ER's it says nothing.
    assert smaller_drop("BYOL", (of(80.0, 80.0), of(diverged=(1,))), er).state == "failed"


def test_a_run_without_room_speaks_for_nobody() -> None:
    own, er = (of(80.0), of(60.0)), (of(79.0), of(75.0))
    for pairs in (((own[0], of(broken=(0,))), er), (own, (er[0], of(broken=(0,))))):
        found = smaller_drop("BYOL", *pairs)
        assert (found.state, found.numbers) == ("failed", "failed: OSError: no room")


def test_seeds_that_are_not_the_same_say_nothing() -> None:
    found = smaller_drop("BYOL", (Measured({0: 80.0}), Measured({1: 60.0})), (of(79.0), of(75.0)))
    assert (found.state, found.numbers) == ("not run", "not run with the same seeds")


def test_alike_is_within_some_points() -> None:
    assert alike("DINO", of(70.0, 71.0), of(70.3, 71.32), 1.0).state == "so"  # 0.31 ± 12.7 x 0.01
    assert alike("DINO", of(70.0, 71.0), of(73.0, 74.1), 1.0).state == "not so"  # 3.05 ± 12.7 x 0.05
    assert alike("DINO", of(70.0, 71.0), of(70.5, 71.3), 1.0).state == "not decided"  # 0.4 ± 1.27
    assert alike("DINO", of(60.0, 80.0, 70.0), of(70.0, 70.0, 70.0), 1.0).state == "not decided"  # 0 ± 10
    assert alike("DINO", of(), of(72.5), 1.0).state == "not run"
