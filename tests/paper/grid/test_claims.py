"""Means, deviations, differences, and the words that follow from them."""

import math

import pytest

from entrec.paper.grid.claims import Claim, Part, above, alike, smaller_drop
from entrec.paper.grid.trials import Measured


def of(*values: float, failed: int = 0) -> Measured:
    return Measured(dict(enumerate(values)), failed)


def test_means_and_deviations_over_seeds() -> None:
    found = of(70.0, 71.0, 75.0)
    assert found.mean == 72.0
    assert found.deviation == pytest.approx(math.sqrt(7.0))  # (4 + 1 + 9) / 2
    assert found.error == pytest.approx(math.sqrt(7.0 / 3))
    assert found.shown(2, beside=75.59) == "72.00 ± 2.65 (3) [75.59]"
    assert of(70.0).shown() == "70.0"
    assert of().shown(beside=1.0) == "not run [1.00]"
    assert of(failed=2).shown() == "failed in 2 of 2"
    assert of(1.0, failed=1).shown(sign=True) == "+1.0, failed in 1 of 2"


def test_differences_are_of_the_same_seeds() -> None:
    found = Measured({0: 10.0, 1: 20.0, 2: 99.0}) - Measured({0: 9.0, 1: 18.0, 3: 0.0})
    assert found.by_seed == {0: 1.0, 1: 2.0}
    assert found.deviation == pytest.approx(math.sqrt(0.5))


def test_above_is_by_two_standard_errors_where_seeds_tell_them() -> None:
    assert above(of()) is None
    assert above(of(0.1)) is True
    assert above(of(-0.1)) is False
    assert above(of(1.0, 2.0, 3.0)) is True  # 2 against 2 x 0.577
    assert above(of(-1.0, 2.0, 3.0)) is False  # 1.33 against 2 x 1.20


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ((True, True), "holds"),
        ((True, False), "holds in part"),
        ((True, None), "holds in part"),
        ((False, False), "does not hold here"),
        ((False, None), "does not hold here"),
        ((None, None), "not run"),
    ],
)
def test_the_word_of_a_claim(parts: tuple[bool | None, ...], word: str) -> None:
    assert Claim("It is so", [Part("a", so, "1") for so in parts]).word == word


def test_a_part_that_was_not_run_has_no_numbers() -> None:
    assert Claim("It is so", [Part("BYOL", True, "3"), Part("DINO", None, "nan")]).numbers == "BYOL: 3; DINO: not run"


def test_a_smaller_drop() -> None:
    found = smaller_drop("BYOL", (of(80.0), of(60.0)), (of(79.0), of(75.0)))
    assert (found.so, found.numbers) == (True, "20.00 without, 4.00 with ER")
    assert smaller_drop("BYOL", (of(80.0), of(79.0)), (of(79.0), of(75.0))).so is False
    assert smaller_drop("BYOL", (of(80.0), of()), (of(79.0), of(75.0))).so is None
    # One that fails has no drop: the original's failure speaks for ER, and ER's own against it.
    assert smaller_drop("BYOL", (of(80.0), of(failed=1)), (of(79.0), of(75.0))).so is True
    assert smaller_drop("BYOL", (of(80.0), of(60.0)), (of(79.0), of(failed=1))).so is False


def test_alike_is_within_some_points() -> None:
    assert alike("DINO", of(70.0, 71.0), of(70.5, 71.3), 1.0).so is True
    assert alike("DINO", of(70.0, 71.0), of(72.5, 71.3), 1.0).so is False
    assert alike("DINO", of(), of(72.5), 1.0).so is None
