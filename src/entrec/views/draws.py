"""The laws of a view's random parameters: those of torchvision's transforms, for all samples in one go.

Everything is drawn where the generator lives, and nothing waits for the device.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from entrec.views.recipe import Range

ATTEMPTS = 10  # that torchvision's RandomResizedCrop makes before it takes the centre


class Boxes(NamedTuple):
    """Crops of k images in whole pixels: top row, left column, height and width, each float32 (k,)."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


class Jitter(NamedTuple):
    """Colour changes of k images: three factors and a share of the colour circle, each (k,), and their order.

    `position` (k, 4) holds when brightness, contrast, saturation and hue come: a permutation of 0..3 in each row.
    """

    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    hue: Tensor
    position: Tensor


def uniform(shape: tuple[int, ...], low: float, high: float, generator: Generator) -> Tensor:
    """Numbers uniform in [low, high), of the given shape."""
    return torch.rand(shape, generator=generator, device=generator.device) * (high - low) + low


def chance(k: int, p: float, generator: Generator) -> Tensor:
    """Which of k samples an event of probability p happens to, bool (k,)."""
    return torch.rand(k, generator=generator, device=generator.device) < p


def crop_boxes(k: int, height: int, width: int, scale: Range, ratio: Range, generator: Generator) -> Boxes:
    """Crops of k images of one size, by the law of torchvision's `RandomResizedCrop`.

    The share of the area is uniform in `scale`, and the logarithm of width / height in `ratio`; sides are rounded to pixels,
    and the place is uniform. The first of ten attempts that fits is taken, or else the centre (`centred_box`).
    """
    area = height * width * uniform((k, ATTEMPTS), *scale, generator)
    aspect = uniform((k, ATTEMPTS), math.log(ratio[0]), math.log(ratio[1]), generator).exp()
    across, down = uniform((2, k), 0.0, 1.0, generator)

    w, h = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    found, first = fits.any(dim=1), fits.int().argmax(dim=1, keepdim=True)
    w, h = w.gather(1, first)[:, 0], h.gather(1, first)[:, 0]
    # A product of floats may round up to the number of places itself.
    top = torch.minimum((down * (height - h + 1)).floor(), height - h)
    left = torch.minimum((across * (width - w + 1)).floor(), width - w)
    drawn, centre = Boxes(top, left, h, w), centred_box(height, width, ratio)
    return Boxes(*(torch.where(found, here, there) for here, there in zip(drawn, centre, strict=True)))


def centred_box(height: int, width: int, ratio: Range) -> tuple[int, int, int, int]:
    """The largest centred crop of allowed width / height: top, left, height and width."""
    w = min(width, round(height * ratio[1]))
    h = min(height, round(width / ratio[0]))
    return (height - h) // 2, (width - w) // 2, h, w


def centred_boxes(k: int, height: int, width: int, device: torch.device) -> Boxes:
    """The largest centred square, for each of k images."""
    return Boxes(*(torch.full((k,), float(side), device=device) for side in centred_box(height, width, (1.0, 1.0))))


def jitter_factors(k: int, brightness: float, contrast: float, saturation: float, hue: float, generator: Generator) -> Jitter:
    """Colour changes by the law of torchvision's `ColorJitter`, with an order for each sample."""

    def factor(reach: float) -> Tensor:
        return uniform((k,), max(0.0, 1 - reach), 1 + reach, generator)

    # What sorts independent uniform numbers is a uniform permutation.
    position = uniform((k, 4), 0.0, 1.0, generator).argsort(dim=1)
    shift = uniform((k,), -hue, hue, generator)
    return Jitter(factor(brightness), factor(contrast), factor(saturation), shift, position)
