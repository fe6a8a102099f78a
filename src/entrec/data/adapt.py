"""Anybody's `torch.utils.data.Dataset`, made to say what a `Source` says."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from entrec.data.files import GREY_MODES, from_pil
from entrec.data.source import Image, PixelSums, Size, Source, ViewFacts, small_size, view_side

_WANTED = "an image, (image, label), a tuple of views, or (tuple of views, label)"
_LOOKED_AT = 256  # images whose pixels are measured
_READ_FOR_LABELS = 10_000  # labels are looked for in every item of a data set this small


class Adapted(Dataset[tuple[Image, int]]):
    """A data set of whatever is an image, as uint8 (C, H, W) and a label (-1 where there is none).

    Args:
        dataset: map-style; its items are an image, (image, label), a tuple of views, or (tuple of views, label). An image is a
            PIL image, a tensor (C, H, W) or (H, W), or an array (H, W, C) or (H, W), uint8 or floats in 0..1.
        labels: `False` leaves labels out.
        channels: of each view; those of the first item without it.
        classes: how many there are, of which labels are places; None where that is not known yet.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        labels: bool = True,
        channels: tuple[int, ...] | None = None,
        classes: int | None = None,
    ) -> None:
        self.dataset, self.labels, self.classes = dataset, labels, classes
        self.channels = channels_of(dataset[0]) if channels is None else channels

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # torch's type leaves the length out

    def __getitem__(self, index: int) -> tuple[Image, int]:
        image, label = split_item(self.dataset[index])
        if self.labels and self.classes is not None and label >= self.classes:
            raise ValueError(
                f"item {index} of {type(self.dataset).__name__} has a label {label}, but there are {self.classes} classes, of "
                f"the labels 0 to {self.classes - 1}: the training set's attribute `classes` names them; or say labels=False"
            )
        views = image if isinstance(image, tuple) else (image,)
        if len(views) != len(self.channels):
            raise ValueError(f"item {index} has {len(views)} views, and the first item {len(self.channels)}")
        try:
            tensors = tuple(as_uint8(view, channels) for view, channels in zip(views, self.channels, strict=True))
        except (TypeError, ValueError) as error:
            raise type(error)(f"item {index} of the data set: {error}") from error
        return tensors if isinstance(image, tuple) else tensors[0], label if self.labels else -1


class _Labelled(NamedTuple):
    """An item's label, -1 for none, and its place."""

    label: int
    place: int


class _Sample(NamedTuple):
    """What an even sample of a data set says of it."""

    sizes: list[Size]  # of the first views
    views: tuple[ViewFacts, ...]
    largest: _Labelled


def open_dataset(dataset: Dataset[Any], *, image_size: int | None = None, labels: bool | None = None) -> Source:
    """The source of a data set; its first item says what its images are, and an even sample what their pixels are like.

    A view's side is the shorter side of images that are all of one size of at most 96 pixels, else what
    `entrec.data.source.view_side` says. Class names are those of its attribute `classes`, or the numbers up to the largest
    label, from its `targets` or `labels` or, of at most 10,000 items, the items themselves.
    """
    check_map_style(dataset)
    adapted, name = Adapted(dataset), type(dataset).__name__
    sizes, (first, *others), largest = _looked_at(adapted)
    if labels and largest.label < 0:
        raise ValueError(f"labels=True, but no label in {len(sizes)} items of {name}; its items may be {_WANTED}")
    adapted.labels = largest.label >= 0 if labels is None else labels
    classes = class_names(dataset) if adapted.labels else ()
    adapted.classes = len(classes)
    if adapted.labels and largest.label >= len(classes):
        adapted[largest.place]  # says what is wrong with it
    size = small_size(sizes)
    side = image_size or (view_side(sizes) if size is None else min(size))
    return Source(
        name.lower(), adapted, None, classes, first.channels, side, first.mean, first.std,
        views=1 + len(others), others=tuple(others),
    )  # fmt: skip


def check_map_style(dataset: Any) -> None:
    """The data set has items, each with a place."""
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise TypeError(
            f"{name} is an IterableDataset: its items have no places, so they can be neither shuffled nor resumed; give a "
            "map-style Dataset, with __len__ and __getitem__"
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"{name} is not a map-style data set: it needs __len__ and __getitem__")
    if len(dataset) == 0:
        raise ValueError(f"{name} is empty")


def sampled(n: int) -> range:
    """The places of an even sample of n items."""
    return range(0, n, -(-n // _LOOKED_AT))


def _looked_at(adapted: Adapted) -> _Sample:
    """Measure an even sample, image by image: large ones would not fit into memory together."""
    sums = [PixelSums(channels) for channels in adapted.channels]
    sizes: list[Size] = []
    largest = _Labelled(-1, 0)
    for place in sampled(len(adapted)):
        image, label = adapted[place]
        views = image if isinstance(image, tuple) else (image,)
        for of_view, view in zip(sums, views, strict=True):
            of_view.add(view[None])
        height, width = views[0].shape[1:]
        sizes.append((height, width))
        largest = max(largest, _Labelled(label, place))
    facts = [ViewFacts(channels, *of_view.moments()) for channels, of_view in zip(adapted.channels, sums, strict=True)]
    return _Sample(sizes, tuple(facts), largest)


def channels_of(item: Any) -> tuple[int, ...]:
    """The channels of each view of an item."""
    image, _ = split_item(item)
    return tuple(len(as_uint8(view)) for view in (image if isinstance(image, tuple) else (image,)))


def split_item(item: Any) -> tuple[Any, int]:
    """An item as its image (a tuple where it is several views) and its label, -1 where there is none."""
    if is_image(item):
        return item, -1
    if isinstance(item, tuple | list) and item:
        if len(item) == 1 and is_image(item[0]):
            return item[0], -1
        if all(map(is_image, item)):
            return tuple(item), -1
        if len(item) == 2 and (label := _label(item[1])) is not None:
            image, _ = split_item(item[0])
            return image, label
    held = f" of {', '.join(type(part).__name__ for part in item)}" if isinstance(item, tuple | list) else ""
    raise TypeError(f"an item of the data set must be {_WANTED}; got {type(item).__name__}{held}")


def is_image(x: Any) -> bool:
    """Whether this can be an image: a PIL image, or a tensor or array of two or three dimensions."""
    return isinstance(x, PIL.Image.Image) or (isinstance(x, Tensor | np.ndarray) and x.ndim in (2, 3))


def as_uint8(image: Any, channels: int | None = None) -> Tensor:
    """An image as uint8 (C, H, W); grey ones are repeated where three channels are wanted."""
    if isinstance(image, PIL.Image.Image):
        return from_pil(image, channels or (1 if image.mode in GREY_MODES else 3))
    if isinstance(image, np.ndarray):
        image = torch.from_numpy(np.ascontiguousarray(image if image.ndim == 2 else image.transpose(2, 0, 1)))
    x: Tensor = image[None] if image.ndim == 2 else image
    if x.is_floating_point():
        if not bool(((x >= 0) & (x <= 1)).all()):
            raise ValueError(
                f"floating-point pixels must be in 0..1, got {float(x.min()):.3g} to {float(x.max()):.3g}; leave normalisation "
                "to entrec, which does it after the views are made"
            )
        x = x.mul(255).round().to(torch.uint8)
    elif x.dtype == torch.bool:
        x = x.to(torch.uint8) * 255
    elif x.dtype != torch.uint8:
        raise TypeError(f"pixels must be uint8 or floats in 0..1, got {x.dtype}")
    if channels == 3 and len(x) == 1:
        x = x.expand(3, -1, -1)
    if channels is not None and len(x) != channels:
        raise ValueError(f"images must have {channels} channels, as the first has, got shape {tuple(x.shape)}")
    return x


def _label(x: Any) -> int | None:
    """The label that `x` is, -1 for `None`; `None` where it is no label."""
    if x is None:
        return -1
    if isinstance(x, Tensor | np.ndarray) and x.ndim == 0:
        x = x.item()
    return int(x) if isinstance(x, int | np.integer) else None


def class_names(dataset: Any) -> tuple[str, ...]:
    """The names of a data set's classes, as `open_dataset` finds them."""
    if isinstance(dataset, Subset):
        return class_names(dataset.dataset)
    named = getattr(dataset, "classes", None)
    if isinstance(named, Sequence) and named and not isinstance(named, str):
        return tuple(map(str, named))
    labels = getattr(dataset, "targets", getattr(dataset, "labels", None))
    if isinstance(dataset, TensorDataset):
        labels = dataset.tensors[1]
    if labels is None and len(dataset) <= _READ_FOR_LABELS:
        labels = [split_item(dataset[i])[1] for i in range(len(dataset))]
    if labels is None:
        raise ValueError(f"{type(dataset).__name__} does not say its classes: give it an attribute `classes`, or labels=False")
    return tuple(str(label) for label in range(max(-1 if label is None else int(label) for label in labels) + 1))
