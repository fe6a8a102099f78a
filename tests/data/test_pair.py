"""A pair of data sets: the second is held out, and must be like the first."""

from typing import Any

import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from entrec.data import Source, open_source
from tests.data.pictures import picture
from tests.data.test_adapt import PIXELS, Items, Stream


@pytest.mark.parametrize("kind", [tuple, list])
def test_the_second_is_held_out_and_the_first_says_the_facts(kind: type) -> None:
    train = TensorDataset(torch.rand(30, 1, 8, 9), torch.arange(30) % 4)
    test = TensorDataset(torch.ones(5, 1, 8, 9), torch.tensor([3, 2, 1, 0, 3]))
    source, alone = open_source(kind([train, test])), open_source(train)
    for fact in ("name", "classes", "channels", "image_size", "mean", "std", "views", "others", "notices"):
        assert getattr(source, fact) == getattr(alone, fact)
    assert source.test is not None
    assert [source.test[i][1] for i in range(5)] == [3, 2, 1, 0, 3]
    assert torch.equal(source.test[0][0], torch.full((1, 8, 9), 255, dtype=torch.uint8))  # type: ignore[arg-type]
    assert source.described == "30 train and 5 test images of 4 classes, 1 x 8 x 8"


def test_halves_of_one_data_set_are_a_pair() -> None:
    whole = Items(*((PIXELS, i % 2) for i in range(6)), classes=["cat", "dog"])
    source = open_source((Subset(whole, range(4)), Subset(whole, [4, 5])))
    assert source.classes == ("cat", "dog")
    assert source.test is not None
    assert len(source.test) == 2  # type: ignore[arg-type]


def test_two_images_are_no_pair_of_data_sets() -> None:
    source = open_source([PIXELS, PIXELS])  # type: ignore[list-item]
    assert source.test is None
    assert len(source.train) == 2  # type: ignore[arg-type]


def test_grey_test_images_among_colour_ones_are_repeated() -> None:
    source = open_source((Items(PIXELS), Items(picture(mode="L"), PIXELS)))
    assert source.test is not None
    assert source.test[0][0].shape == (3, 10, 12)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (Items((PIXELS, 2), classes=["a", "b", "c"]), Items((PIXELS, 1), classes=["a", "b"])),
        (Items((PIXELS, 2), classes=["a", "b", "c"]), Items((PIXELS, 1))),  # numbers are in range
        (Items((PIXELS, 2)), Items((PIXELS, 1), classes=["a", "b"])),
        (Items((PIXELS, 2)), Items((PIXELS, 1), (PIXELS, None))),
    ],
)
def test_labels_that_mean_the_same_are_taken(train: Items, test: Items) -> None:
    source = open_source((train, test))
    assert source.test is not None
    assert source.test[0][1] == 1
    assert source.notices == ()


def test_labels_that_are_left_out_are_left_out_of_both() -> None:
    for source in (
        open_source((Items((PIXELS, 0)), Items((PIXELS, 5))), labels=False),
        open_source((Items(PIXELS), Items((PIXELS, 5)))),
    ):
        assert source.test is not None
        assert (source.classes, source.train[0][1], source.test[0][1], source.notices) == ((), -1, -1, ())


def test_test_items_without_labels_are_noticed_or_refused() -> None:
    pair = Items((PIXELS, 0)), Items(PIXELS)
    source = open_source(pair)
    assert source.test is not None
    assert source.test[0][1] == -1
    assert len(source.notices) == 1
    assert "the test items have no labels" in source.notices[0]
    with pytest.raises(ValueError, match=r"labels=True, but the test items have no labels.*labels=False"):
        open_source(pair, labels=True)


SOURCE = Source("a", Items(), None, (), 3, 8, (0.5,) * 3, (0.2,) * 3)


@pytest.mark.parametrize(
    ("pair", "error", "match"),
    [
        ((Items(PIXELS), Items(PIXELS[:1])), ValueError, "test images must have 3 channels, as the training images, got 1"),
        ((Items(PIXELS[:1]), Items(PIXELS)), ValueError, "test images must have 1 channels, as the training images, got 3"),
        ((Items((PIXELS, PIXELS)), Items(PIXELS)), ValueError, "test items must have 2 views, as the training items, got 1"),
        (
            (Items((PIXELS, PIXELS[:1])), Items((PIXELS, PIXELS))),
            ValueError,
            "test images must have 3 and 1 channels, as the training images, got 3 and 3",
        ),
        ((Items((PIXELS, 1)), Items((PIXELS, 2))), ValueError, "among the 2 training classes, got labels up to 2"),
        (
            (Items((PIXELS, 1), classes=["cat", "dog"]), Items((PIXELS, 1), classes=["dog", "cat"])),
            ValueError,
            "training classes, in their order; 'dog' stands where 'cat' does",
        ),
        ((Items(PIXELS), Items()), ValueError, "Items is empty"),
        ((Items(PIXELS), Stream()), TypeError, "Stream is an IterableDataset"),
        ((Items(PIXELS),), TypeError, r"a pair \(train, test\) of Datasets, got Items$"),
        ((Items(PIXELS),) * 3, TypeError, r"a pair \(train, test\) of Datasets, got Items, Items, Items"),
        ((Items(PIXELS), "images/test"), TypeError, r"a pair \(train, test\) of Datasets, got Items, str"),
        ((SOURCE, Items(PIXELS)), TypeError, r"a pair \(train, test\) of Datasets, got Source, Items"),
    ],
)
def test_what_is_not_alike_is_refused(pair: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        open_source(pair)
