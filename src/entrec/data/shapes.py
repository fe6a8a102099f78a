"""Shapes: wallpapers of one motif, drawn with every factor known. The class is the motif; all else is style.

A picture is a lattice of copies of one motif. Its class is *content*: a crop with one whole copy shows it, and neither a flip,
colour jitter, grey nor blur changes it. The lattice's spacing, angle and place, each copy's turn, size, shift and colour, the
background and the noise are *style*, drawn anew for each picture (the setting of von Kügelgen et al., 2021). No pixel's value
says anything about the class by itself, so that a linear classifier of pixels does little better than chance. The background is
grey: a colour of its own would be the easiest thing that two crops of a picture share, and methods that look for few things
(SwAV, DINO) would find that instead of the motif.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from entrec import checks
from entrec.data.motifs import MOTIFS

CLASSES = tuple(MOTIFS)
TRAIN, TEST = 4096, 2048
Factors = dict[str, Tensor]

_COPIES = 4  # per side of the lattice: no picture shows more, whatever the angle
_RADIUS = 0.48  # of the largest motif, in cells of the lattice
_INK = 0.18  # chroma of a motif
_NOISE = 0.06  # standard deviation of pixels in 0..1


class Rendered(NamedTuple):
    """Pictures and what they were drawn from."""

    images: Tensor  # uint8 (n, 3, size, size)
    labels: Tensor  # int64 (n,), places in `CLASSES`
    factors: Factors  # a row for each picture


def render(n: int, seed: int, size: int = 32) -> Rendered:
    """Draw `n` pictures of `size` x `size` pixels, as many of each class as of any other, or one more.

    The same arguments give the same pictures; other seeds give independent ones. Factors of a picture, (n,) or (n, 2):
    `spacing` of the lattice in picture sides, its `angle` and its `place` in cells, `scale` of the motif, and the
    background's `lightness` (0..1). Factors of each of its copies, (n, 16): `turn`, `shrink`, `shift_x`, `shift_y`, `hue` and
    `contrast`, which is how much lighter than the background it is.

    Example:
        >>> pictures = render(4, seed=0)
        >>> pictures.images.shape, pictures.factors["hue"].shape
        (torch.Size([4, 3, 32, 32]), torch.Size([4, 16]))
    """
    n, size = checks.whole("n", n, 1), checks.whole("size", size, 8)
    generator = torch.Generator().manual_seed(checks.whole("seed", seed, 0))
    labels = torch.randperm(n, generator=generator) % len(CLASSES)
    factors = _draw(n, generator)
    images = torch.empty(n, 3, size, size, dtype=torch.uint8)
    for part in torch.arange(n).split(1024):  # the memory of a part, not of all
        images[part] = _paint(labels[part], {name: value[part] for name, value in factors.items()}, size, generator)
    return Rendered(images, labels, factors)


def _draw(n: int, generator: torch.Generator) -> Factors:
    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=generator)

    return {
        "spacing": uniform(0.48, 0.58),
        "angle": uniform(0, math.pi / 2),
        "place": uniform(0, 1, 2),
        "scale": uniform(0.8, 1),
        "lightness": uniform(0.2, 0.3),
        "turn": uniform(-0.2, 0.2, _COPIES**2),
        "shrink": uniform(0.9, 1, _COPIES**2),
        "shift_x": uniform(-1, 1, _COPIES**2),
        "shift_y": uniform(-1, 1, _COPIES**2),
        "hue": uniform(0, 2 * math.pi, _COPIES**2),
        "contrast": uniform(0.2, 0.5, _COPIES**2),
    }


def _paint(labels: Tensor, factors: Factors, size: int, generator: torch.Generator) -> Tensor:
    """The pictures of these classes and factors, uint8 (n, 3, size, size)."""
    n = len(labels)
    axis = (torch.arange(size) + 0.5) / size - 0.5
    grid = torch.stack(torch.meshgrid(axis, -axis, indexing="xy")).flatten(1)  # (2, pixels): x to the right, y up
    x, y = _turned(grid[0].expand(n, -1), grid[1].expand(n, -1), factors["angle"][:, None])
    u = torch.stack([x, y]) / factors["spacing"][:, None] + factors["place"].T[:, :, None]  # in cells
    cell = u.floor()
    copy = cell[0].long() % _COPIES * _COPIES + cell[1].long() % _COPIES  # (n, pixels): whose cell a pixel is in
    own = {name: factors[name].gather(1, copy) for name in ("turn", "shrink", "shift_x", "shift_y", "hue", "contrast")}

    cover = _cover(labels, factors, own, u - cell - 0.5, size)
    lightness = factors["lightness"][:, None]
    ink = _colour(own["hue"], lightness + own["contrast"], _INK)
    pixels = torch.lerp(lightness[:, None].expand_as(ink), ink, cover[:, None])
    pixels = pixels + _NOISE * torch.randn(pixels.shape, generator=generator)
    return pixels.clamp(0, 1).mul(255).round().to(torch.uint8).reshape(n, 3, size, size)


def _cover(labels: Tensor, factors: Factors, own: Factors, inside: Tensor, size: int) -> Tensor:
    """How much of each pixel the motif covers, 0..1, (n, pixels); `inside` (2, n, pixels) is where it lies in its cell."""
    radius = _RADIUS * factors["scale"][:, None] * own["shrink"]  # in cells
    room = 0.49 - radius  # a motif stays in its cell
    x, y = (inside[0] - room * own["shift_x"]) / radius, (inside[1] - room * own["shift_y"]) / radius
    x, y = _turned(x, y, own["turn"] - factors["angle"][:, None])
    distance = torch.empty_like(x)
    for label, motif in enumerate(MOTIFS.values()):
        rows = labels == label
        distance[rows] = motif(x[rows], y[rows])
    in_pixels = distance * radius * factors["spacing"][:, None] * size
    return (0.5 - in_pixels).clamp(0, 1)  # an edge is one pixel broad


def _turned(x: Tensor, y: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = angle.cos(), angle.sin()
    return cos * x - sin * y, sin * x + cos * y


def _colour(hue: Tensor, lightness: Tensor, chroma: float) -> Tensor:
    """Colours of this hue and chroma around a grey of this lightness; (n, pixels) -> (n, 3, pixels)."""
    thirds = torch.arange(3)[:, None] * (2 * math.pi / 3)
    return lightness[:, None] + chroma * torch.cos(hue[:, None] + thirds)
