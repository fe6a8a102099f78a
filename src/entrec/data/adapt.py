"""Anybody's `torch.utils.data.Dataset`, made to say what a `Source` says."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from entrec.data.files import GREY_MODES, from_pil
from entrec.data.source import Image, Source, measured

_WANTED = "an image, (image, label), a tuple of views, or (tuple of views, label)"
_LOOKED_AT = 256  # images whose pixels are measured
_READ_FOR_LABELS = 10_000  # labels are looked for in every item of a data set this small


class Adapted(Dataset[tuple[Image, int]]):
    """A data set of whatever is an image, as uint8 (C, H, W) and a label (-1 where there is none).

    Args:
        dataset: map-style; its items are an image, (image, label), a tuple of views, or (tuple of views, label). An image is a
            PIL image, a tensor (C, H, W) or (H, W), or an array (H, W, C) or (H, W), uint8 or floats in 0..1.
        labels: `False` leaves labels out.
    """

    def __init__(self, dataset: Dataset[Any], labels: bool = True) -> None:
        self.dataset, self.labels = dataset, labels
        image, _ = split_item(dataset[0])
        views = image if isinstance(image, tuple) else (image,)
        self.channels = tuple(len(as_uint8(view)) for view in views)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # torch's type leaves the length out

    def __getitem__(self, index: int) -> tuple[Image, int]:
        image, label = split_item(self.dataset[index])
        views = image if isinstance(image, tuple) else (image,)
        if len(views) != len(self.channels):
            raise ValueError(f"item {index} has {len(views)} views, and the first item {len(self.channels)}")
        try:
            tensors = tuple(as_uint8(view, channels) for view, channels in zip(views, self.channels, strict=True))
        except (TypeError, ValueError) as error:
            raise type(error)(f"item {index} of the data set: {error}") from error
        return tensors if isinstance(image, tuple) else tensors[0], label if self.labels else -1


def open_dataset(dataset: Dataset[Any], *, image_size: int | None = None, labels: bool | None = None) -> Source:
    """The source of a data set; its first item says what its images are, and an even sample what their pixels are like.

    Class names are those of its attribute `classes`, or the numbers up to the largest label, from its `targets` or `labels`
    or, of at most 10,000 items, the items themselves.
    """
    if isinstance(dataset, IterableDataset):
        raise TypeError(
            f"{type(dataset).__name__} is an IterableDataset: its items have no places, so they can be neither shuffled nor "
            "resumed; give a map-style Dataset, with __len__ and __getitem__"
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"{type(dataset).__name__} is not a map-style data set: it needs __len__ and __getitem__")
    if len(dataset) == 0:
        raise ValueError(f"{type(dataset).__name__} is empty")
    labelled = split_item(dataset[0])[1] >= 0
    if labels and not labelled:
        raise ValueError(
            f"labels=True, but the first item of {type(dataset).__name__} has no label; its items may be {_WANTED}"
        )
    keep = labelled if labels is None else labels
    adapted = Adapted(dataset, keep)
    sample = [adapted[i][0] for i in range(0, len(adapted), -(-len(adapted) // _LOOKED_AT))]
    first = [image[0] if isinstance(image, tuple) else image for image in sample]
    mean, std = measured(torch.cat([image.flatten(1) for image in first], dim=1)[None, :, :, None])
    views = len(adapted.channels) if isinstance(sample[0], tuple) else 1
    side = image_size or min(first[0].shape[1:])
    name = type(dataset).__name__.lower()
    return Source(name, adapted, None, _classes(dataset) if keep else (), adapted.channels[0], side, mean, std, views=views)


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


def _classes(dataset: Dataset[Any]) -> tuple[str, ...]:
    if isinstance(dataset, Subset):
        return _classes(dataset.dataset)
    named = getattr(dataset, "classes", None)
    if isinstance(named, Sequence) and named and not isinstance(named, str):
        return tuple(map(str, named))
    labels = getattr(dataset, "targets", getattr(dataset, "labels", None))
    if isinstance(dataset, TensorDataset):
        labels = dataset.tensors[1]
    n = len(dataset)  # type: ignore[arg-type]
    if labels is None and n <= _READ_FOR_LABELS:
        labels = [split_item(dataset[i])[1] for i in range(n)]
    if labels is None:
        raise ValueError(f"{type(dataset).__name__} does not say its classes: give it an attribute `classes`, or labels=False")
    return tuple(str(label) for label in range(int(max(map(int, labels))) + 1))
