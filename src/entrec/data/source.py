"""What a data set must say of itself before one can train on it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

Image = Tensor | tuple[Tensor, ...]  # uint8 (C, H, W); a tuple where a sample is several views (cameras, modalities)

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SAMPLE = 10_000  # images whose pixels are measured


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
        mean: per channel, of pixels in 0..1.
        std: per channel, of pixels in 0..1.
        backbone: the encoder to take where the user names none.
        views: 1, or how many views a sample is.
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


def measured(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in 0..1, over uint8 (N, C, H, W).

    Above 10,000 images, those of an evenly spaced sample of at most as many. A constant channel gets the standard deviation
    of one grey level, so that one may always divide by it.
    """
    images = images[:: -(-len(images) // _SAMPLE)]
    total, squares = (torch.zeros(images.shape[1], dtype=torch.float64) for _ in range(2))
    for part in images.split(1000):
        pixels = part.transpose(0, 1).flatten(1).float() / 255
        total += pixels.sum(1, dtype=torch.float64)
        squares += pixels.square().sum(1, dtype=torch.float64)
    count = images.numel() / images.shape[1]
    mean = total / count
    std = (squares / count - mean.square()).clamp(min=0).sqrt().clamp(min=1 / 255)
    return tuple(mean.tolist()), tuple(std.tolist())
