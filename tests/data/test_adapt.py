"""Anybody's data set: images of every kind become uint8, labels whole numbers, and what is neither is refused."""

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset
from torchvision.transforms.v2.functional import pil_to_tensor

from entrec.data import Source, ViewFacts, open_source
from entrec.data.adapt import as_uint8
from tests.data.pictures import picture

PIXELS = torch.randint(0, 256, (3, 10, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Items(Dataset[Any]):
    def __init__(self, *items: Any, **attributes: Any) -> None:
        self.items = items
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


@pytest.mark.parametrize(
    "image",
    [
        PIXELS,
        PIXELS.float() / 255,
        PIXELS.double() / 255,
        PIXELS.permute(1, 2, 0).numpy(),
        PIXELS.permute(1, 2, 0).numpy() / 255,
    ],
)
def test_every_kind_of_colour_image_is_the_same(image: Any) -> None:
    assert torch.equal(as_uint8(image), PIXELS)


def test_pil_images_are_torchvisions() -> None:
    for mode in ("RGB", "L"):
        assert torch.equal(as_uint8(picture(mode=mode)), pil_to_tensor(picture(mode=mode)))
    assert as_uint8(picture(mode="RGBA")).shape == (3, 10, 12)


@pytest.mark.parametrize("image", [PIXELS[0], PIXELS[0].numpy(), PIXELS[:1], PIXELS[0, :, :, None].numpy()])
def test_grey_images_have_one_channel_or_are_repeated(image: Any) -> None:
    assert torch.equal(as_uint8(image), PIXELS[:1])
    assert torch.equal(as_uint8(image, 3), PIXELS[:1].expand(3, -1, -1))


def test_black_and_white_is_0_and_255() -> None:
    assert as_uint8(torch.tensor([[True, False]])).tolist() == [[[255, 0]]]


@pytest.mark.parametrize(
    ("item", "views", "label"),
    [
        (PIXELS, 1, -1),
        ((PIXELS,), 1, -1),
        ((PIXELS, 3), 1, 3),
        ([PIXELS, torch.tensor(3)], 1, 3),
        ((PIXELS, np.int64(3)), 1, 3),
        ((PIXELS, None), 1, -1),
        ((picture(), 3), 1, 3),
        ((PIXELS, PIXELS), 2, -1),
        (((PIXELS, PIXELS[:1], PIXELS), 3), 3, 3),
        (([picture(), picture()], 3), 2, 3),
    ],
)
def test_items_of_every_form(item: Any, views: int, label: int) -> None:
    source = open_source(Items(item, item))
    image, got = source.train[1]
    assert got == label
    assert source.views == views
    assert source.channels == 3
    assert (len(image) if isinstance(image, tuple) else 1) == views
    assert source.classes == (tuple("0123") if label == 3 else ())


def test_a_data_set_says_what_its_images_are() -> None:
    images = torch.rand(30, 1, 8, 9)
    source = open_source(TensorDataset(images, torch.arange(30) % 4))
    pixels = images.mul(255).round() / 255
    assert isinstance(source, Source)
    assert (source.channels, source.image_size, source.views, source.test) == (1, 8, 1, None)
    assert source.classes == tuple("0123")
    assert source.mean == pytest.approx([float(pixels.mean())], abs=1e-5)
    assert source.std == pytest.approx([float(pixels.std(correction=0))], abs=1e-5)
    assert open_source(source) is source
    assert open_source(source, image_size=16).image_size == 16


def test_class_names_are_looked_for_where_data_sets_keep_them() -> None:
    item = (PIXELS, 1)
    assert open_source(Items(item, classes=["cat", "dog"])).classes == ("cat", "dog")
    assert open_source(Subset(Items(item, item, classes=["cat", "dog"]), [1])).classes == ("cat", "dog")
    assert open_source(Items(item, targets=[1, 2])).classes == ("0", "1", "2")
    assert open_source(Items(item), labels=False).classes == ()
    assert open_source(Items(item), labels=False).train[0][1] == -1


def test_grey_images_among_colour_ones_are_repeated() -> None:
    source = open_source(Items(picture(), picture(mode="L"), PIXELS[:1]))
    images = [source.train[i][0] for i in range(3)]
    assert all(isinstance(image, Tensor) and image.shape == (3, 10, 12) for image in images)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield PIXELS


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (Stream(), TypeError, "IterableDataset.*give a map-style Dataset"),
        (Items(), ValueError, "is empty"),
        (Items(PIXELS.float() / 255 * 4 - 2), ValueError, "must be in 0..1, got -2 to 2; leave normalisation to entrec"),
        (Items(torch.full((3, 4, 4), float("nan"))), ValueError, "must be in 0..1"),
        (Items(PIXELS.long()), TypeError, "uint8 or floats in 0..1, got torch.int64"),
        (Items({"image": PIXELS}), TypeError, "must be an image.*got dict"),
        (Items((PIXELS, "cat")), TypeError, "got tuple of Tensor, str"),
        (Items((PIXELS, 0.5)), TypeError, "got tuple of Tensor, float"),
        (Items("a.png"), TypeError, "got str"),
        (Items(PIXELS, PIXELS[:2]), ValueError, "item 1 of the data set: images must have 3 channels"),
        (Items((PIXELS, PIXELS), (PIXELS, PIXELS, PIXELS)), ValueError, "item 1 has 3 views, and the first item 2"),
        (
            Items((PIXELS, 0), (PIXELS, 3), classes=["a", "b"]),
            ValueError,
            "item 1 of Items has a label 3, but there are 2 classes, of the labels 0 to 1",
        ),
        ("", ValueError, "a folder or archive, got an empty word"),
        (3, TypeError, "data must be a name, a path, a Dataset, a pair of them or a Source, got int"),
    ],
)
def test_what_is_not_images_is_refused(data: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        open_source(data)


def test_labels_that_are_not_there_are_an_error() -> None:
    with pytest.raises(ValueError, match="labels=True, but no label in 1 items of Items"):
        open_source(Items(PIXELS), labels=True)


@pytest.mark.parametrize(
    ("shapes", "side"),
    [
        ([(28, 28)] * 3, 28),  # small and of one size: as they are
        ([(96, 50)] * 3, 50),
        ([(97, 50)] * 3, 32),  # otherwise the folders' rule
        ([(28, 28), (28, 29)], 32),
        ([(300, 500)] * 3, 224),
        ([(300, 500), (110, 100), (64, 64)], 96),
    ],
)
def test_a_views_side_follows_from_the_sizes_of_all_images_looked_at(shapes: list[tuple[int, int]], side: int) -> None:
    data = Items(*(torch.zeros(3, *shape, dtype=torch.uint8) for shape in shapes))
    assert open_source(data).image_size == side
    assert open_source(data, image_size=40).image_size == 40


def test_images_of_several_sizes_are_measured_pixel_by_pixel() -> None:
    images = [torch.randint(0, 256, (3, side, 9), dtype=torch.uint8) for side in (4, 7, 30)]
    pixels = torch.cat([image.flatten(1) for image in images], dim=1).double() / 255
    source = open_source(Items(*images))
    assert source.mean == pytest.approx(pixels.mean(1).tolist(), abs=1e-6)
    assert source.std == pytest.approx(pixels.std(1, correction=0).tolist(), abs=1e-6)


class Fleeting(Dataset[Tensor]):
    """Makes each image when it is asked for, and counts how many live at once."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Tensor]] = []
        self.most = 0

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Tensor:
        image = torch.full((3, 8, 8), index, dtype=torch.uint8)
        self.made.append(weakref.ref(image))
        self.most = max(self.most, sum(made() is not None for made in self.made))
        return image


def test_large_images_need_not_fit_into_memory_together() -> None:
    data = Fleeting()
    open_source(data)
    assert len(data.made) >= 50
    assert data.most <= 2
    open_source((data, data))
    assert data.most <= 2


def test_views_of_several_kinds_are_measured_each_on_its_own() -> None:
    colour = torch.randint(0, 256, (5, 3, 8, 9), dtype=torch.uint8)
    depth = torch.randint(100, 200, (5, 1, 4, 4), dtype=torch.uint8)
    far = torch.full((5, 2, 6, 6), 51, dtype=torch.uint8)
    source = open_source(Items(*(((colour[i], depth[i], far[i]), i) for i in range(5))))
    assert (source.views, source.channels, source.image_size) == (3, 3, 8)
    assert source.mean == pytest.approx((colour.double() / 255).mean((0, 2, 3)).tolist(), abs=1e-6)
    second, third = source.others
    assert isinstance(second, ViewFacts)
    assert second.channels == 1
    assert second.mean == pytest.approx([float(depth.double().mean()) / 255], abs=1e-6)
    assert second.std == pytest.approx([float(depth.double().std(correction=0)) / 255], abs=1e-6)
    assert third.channels == 2
    assert third.mean == pytest.approx((0.2, 0.2))
    assert third.std == pytest.approx((1 / 255, 1 / 255))
    image, _ = source.train[2]
    assert [tuple(view.shape) for view in image] == [(3, 8, 9), (1, 4, 4), (2, 6, 6)]
    assert open_source(Items(PIXELS)).others == ()


def test_labels_may_be_missing_in_part() -> None:
    for labels in ([-1, 1, 0], [2, -1, None], [None, None, 1]):
        source = open_source(Items(*((PIXELS, label) for label in labels)))
        assert [source.train[i][1] for i in range(3)] == [-1 if label is None else label for label in labels]
        assert len(source.classes) == max(label or 0 for label in labels) + 1
    assert open_source(Items((PIXELS, 1), (PIXELS, None), targets=[1, None])).classes == ("0", "1")


def test_a_label_beyond_the_classes_that_was_not_looked_at_is_named_where_it_comes() -> None:
    items = [(PIXELS, 7 if place == 1 else 0) for place in range(600)]
    source = open_source(Items(*items, classes=["a", "b"]))
    with pytest.raises(ValueError, match=r"item 1 of Items has a label 7, but there are 2 classes"):
        source.train[1]
    assert open_source(Items(*items, classes=["a", "b"]), labels=False).train[1][1] == -1


def test_a_test_label_beyond_the_training_classes_is_named() -> None:
    train = Items((PIXELS, 0), (PIXELS, 1), classes=["a", "b"])
    with pytest.raises(ValueError, match=r"item 1 of Items has a label 5, but there are 2 classes, of the labels 0 to 1"):
        open_source((train, Items((PIXELS, 0), (PIXELS, 5), classes=["a", "b"])))
