"""Anybody's data set: images of every kind become uint8, labels whole numbers, and what is neither is refused."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset
from torchvision.transforms.v2.functional import pil_to_tensor

from entrec.data import Source, open_source
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
        (3, TypeError, "data must be a name, a path, a Dataset or a Source, got int"),
    ],
)
def test_what_is_not_images_is_refused(data: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        open_source(data)


def test_labels_that_are_not_there_are_an_error() -> None:
    with pytest.raises(ValueError, match="labels=True, but the first item of Items has no label"):
        open_source(Items(PIXELS), labels=True)
