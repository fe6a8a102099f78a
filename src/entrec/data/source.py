"""What a data set must say of itself before one can train on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from entrec.data.files import Files
from entrec.data.held import Held

Image = Tensor | tuple[Tensor, ...]  # uint8 (C, H, W); a tuple where a sample is several views (cameras, modalities)
Size = tuple[int, int]  # height and width

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SAMPLE = 10_000  # images whose pixels are measured
_SMALL_SIDE, _USUAL_SIDE = 96, 224


class ViewFacts(NamedTuple):
    """What is known of the pixels of one of a sample's views."""

    channels: int
    mean: tuple[float, ...]  # per channel, of pixels in 0..1
    std: tuple[float, ...]


@dataclass(frozen=True)
class Source:
    """A data set and its facts.

    Args:
        name: what to call it.
        train: map-style data set of `(image, label)`; the image is uint8 (C, H, W), or a tuple of such where a sample is
            several views; the label is -1 where there is none. `len(train)` is known.
        test: the same for held-out images, or `None`.
        classes: the names that labels are places in; `()` without labels.
        channels: of an image (of the first view).
        image_size: side of a full view in pixels, unless the user says otherwise.
        mean: per channel, of pixels in 0..1 (of the first view).
        std: per channel, of pixels in 0..1 (of the first view).
        backbone: the encoder to take where the user names none.
        views: 1, or how many views a sample is.
        others: the facts of the views after the first; `()` where they are those of the first.
        notices: sentences that the user should read, on how the data were understood.
    """

    name: str
    train: Dataset[tuple[Image, int]]
    test: Dataset[tuple[Image, int]] | None
    classes: tuple[str, ...]
    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    backbone: str = "resnet18"
    views: int = 1
    others: tuple[ViewFacts, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """The data in one line, such as `4096 train and 2048 test images of 10 classes, 3 x 32 x 32`."""
        counts = {name: len(part) for name, part in (("train", self.train), ("test", self.test)) if part is not None}  # type: ignore[arg-type]
        images = " and ".join(f"{n} {name}" for name, n in counts.items())
        images += " image" if list(counts.values())[-1] == 1 else " images"
        return f"{images} {self._labelling()}, {self._shape()}"

    def _labelling(self) -> str:
        if not self.classes:
            return "without labels"
        # Other data sets would have to be read for it.
        partly = isinstance(self.train, Held | Files) and bool((self.train.labels < 0).any())
        classes = "1 class" if len(self.classes) == 1 else f"{len(self.classes)} classes"
        return f"of {classes}{', some without a label' if partly else ''}"

    def _shape(self) -> str:
        channels = [self.channels, *(view.channels for view in self.others)]
        shapes = [f"{c} x {self.image_size} x {self.image_size}" for c in channels]
        if self.views == 1:
            return shapes[0]
        return f"{self.views} views of {shapes[0]}" if len(set(shapes)) == 1 else f"views of {' and '.join(shapes)}"


class PixelSums:
    """Running sums over the pixels of images, from which their mean and standard deviation follow.

    Args:
        channels: of every image.
    """

    def __init__(self, channels: int) -> None:
        self.total, self.squares = (torch.zeros(channels, dtype=torch.float64) for _ in range(2))
        self.count = 0

    def add(self, images: Tensor) -> None:
        """Count in images, uint8 (N, C, H, W), of any size."""
        pixels = images.transpose(0, 1).flatten(1).float() / 255
        self.total += pixels.sum(1, dtype=torch.float64)
        self.squares += pixels.square().sum(1, dtype=torch.float64)
        self.count += pixels.shape[1]

    def moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation per channel of pixels in 0..1.

        A constant channel gets the standard deviation of one grey level, so that one may always divide by it.
        """
        mean = self.total / self.count
        std = (self.squares / self.count - mean.square()).clamp(min=0).sqrt().clamp(min=1 / 255)
        return tuple(mean.tolist()), tuple(std.tolist())


def measured(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in 0..1, over uint8 (N, C, H, W); see `PixelSums.moments`.

    Above 10,000 images, those of an evenly spaced sample of at most as many.
    """
    sums = PixelSums(images.shape[1])
    for part in images[:: -(-len(images) // _SAMPLE)].split(1000):
        sums.add(part)
    return sums.moments()


def small_size(sizes: Sequence[Size]) -> Size | None:
    """The size that all images have, where it is one and at most 96 pixels a side."""
    return sizes[0] if len(set(sizes)) == 1 and max(sizes[0]) <= _SMALL_SIDE else None


def view_side(sizes: Sequence[Size]) -> int:
    """The side of a view of images of these sizes: the median image's, at most 224, as a multiple of 32 for every backbone.

    Example:
        >>> view_side([(300, 500), (110, 100), (64, 64)])
        96
    """
    shorter = int(median([min(size) for size in sizes])) if sizes else _USUAL_SIDE
    return max(32, min(_USUAL_SIDE, shorter // 32 * 32))
