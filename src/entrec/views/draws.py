"""The laws of a view's random parameters: those of torchvision's transforms, for all samples in one go.

All of them are functions of uniform numbers, from a generator or drawn beforehand (`Drawn`): those are the only thing random
about a view, so the rest can be compiled. Everything is drawn where the generator lives, and nothing waits for the device.
"""

import math
from typing import NamedTuple, TypeAlias

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


class Drawn:
    """Uniform numbers in [0, 1) that were drawn beforehand, (n, k): n for each of k samples, handed out one after another."""

    def __init__(self, numbers: Tensor) -> None:
        self.left = numbers

    def take(self, n: int) -> Tensor:
        """The next n numbers of each sample, (n, k)."""
        if n > len(self.left):
            raise ValueError(f"{n} numbers are wanted for each sample, and {len(self.left)} are left")
        taken, self.left = self.left[:n], self.left[n:]
        return taken


Random: TypeAlias = Generator | Drawn


def numbers(n: int, k: int, random: Random) -> Tensor:
    """Uniform numbers in [0, 1), n for each of k samples, (n, k)."""
    return random.take(n) if isinstance(random, Drawn) else torch.rand(n, k, generator=random, device=random.device)


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Numbers uniform in [low, high), from such as are in [0, 1)."""
    return uniform * (high - low) + low


def chance(k: int, p: float, random: Random) -> Tensor:
    """Which of k samples an event of probability p happens to, bool (k,)."""
    return numbers(1, k, random)[0] < p


def crop_boxes(k: int, height: int, width: int, scale: Range, ratio: Range, random: Random) -> Boxes:
    """Crops of k images of one size, by the law of torchvision's `RandomResizedCrop`.

    The share of the area is uniform in `scale`, and the logarithm of width / height in `ratio`; sides are rounded to pixels,
    and the place is uniform. The first of ten attempts that fits is taken, or else the centre (`centred_box`).
    """
    area = height * width * between(numbers(ATTEMPTS, k, random), *scale)
    aspect = between(numbers(ATTEMPTS, k, random), math.log(ratio[0]), math.log(ratio[1])).exp()
    across, down = numbers(2, k, random)

    w, h = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    found, first = fits.any(dim=0), fits.int().argmax(dim=0, keepdim=True)
    w, h = w.gather(0, first)[0], h.gather(0, first)[0]
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


def jitter_factors(k: int, brightness: float, contrast: float, saturation: float, hue: float, random: Random) -> Jitter:
    """Colour changes by the law of torchvision's `ColorJitter`, with an order for each sample."""
    position = _ranks(numbers(4, k, random)).T
    shift, *uniform = numbers(4, k, random)
    reaches = (brightness, contrast, saturation)
    first, second, third = (between(x, max(0.0, 1 - reach), 1 + reach) for x, reach in zip(uniform, reaches, strict=True))
    return Jitter(first, second, third, between(shift, -hue, hue), position)


def _ranks(x: Tensor) -> Tensor:
    """The place of each number of a column in its order: of independent uniform numbers, a uniform permutation of 0..n-1.

    By comparing all with all, which for a few numbers is less work than to sort.
    """
    earlier = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).tril(-1)[:, :, None]
    below = (x[None] < x[:, None]) | ((x[None] == x[:, None]) & earlier)  # [i, j]: j comes before i
    return below.sum(dim=1)
