"""Shapes: wallpapers of one motif, drawn with every factor known. The class is the motif; all else is style.

A picture is a lattice of copies of one motif. Its class is *content*: any crop with one whole copy shows it, and neither flip,
turn, colour jitter, grey nor blur changes it. Colours, contrast, gradients, noise, the lattice's spacing, angle and place, and
each copy's own turn, size and shift are *style*, drawn anew for each picture (the setting of von Kügelgen et al., 2021). No
pixel's value says anything about the class on its own, so a linear classifier of pixels is close to chance.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from entrec import checks
from entrec.data.motifs import MOTIFS

CLASSES = tuple(MOTIFS)
TRAIN, TEST = 8192, 2048
_CELLS = 8  # copies per side whose turn, size and shift are drawn; the lattice repeats them beyond


class Rendered(NamedTuple):
    """Pictures and what they were drawn from: `factors` holds one value or row per picture."""

    images: Tensor  # uint8 (n, 3, size, size)
    labels: Tensor  # int64 (n,), places in `CLASSES`
    factors: dict[str, Tensor]


def render(n: int, seed: int, size: int = 32) -> Rendered:
    """Draw `n` pictures of `size` x `size` pixels, as many of each class as of any other (or one more).

    Factors: `spacing` (of the lattice, as a part of the picture's side), `angle` (of the lattice, radians), `place` (2, its
    phase), `scale` (of the motif in its cell), `hue`, `lightness` (of the motif, 0..1), `background_hue`,
    `background_lightness`, `gradient` (2, in lightness per picture side) and `noise` (standard deviation of pixels in 0..1).
    The same `n`, `seed` and `size` give the same pictures; other seeds give independent ones.
    """
    n, size = checks.whole("n", n, 1), checks.whole("size", size, 8)
    generator = torch.Generator().manual_seed(checks.whole("seed", seed, 0))
    labels = torch.randperm(n, generator=generator) % len(CLASSES)
    factors = _draw_factors(n, generator)
    images = torch.empty(n, 3, size, size, dtype=torch.uint8)
    for part in torch.arange(n).split(1024):  # in parts: the memory of one, not of all
        images[part] = _paint(labels[part], {name: value[part] for name, value in factors.items()}, size, generator)
    return Rendered(images, labels, factors)


def _draw_factors(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=generator)

    background = uniform(0.15, 0.85)
    contrast = uniform(0.3, 0.6)  # lighter or darker than the background, whichever has room; either where both have
    up = torch.where(background + contrast > 1, 0.0, torch.where(background - contrast < 0, 1.0, uniform(0, 1).round()))
    return {
        "spacing": uniform(0.36, 0.5),
        "angle": uniform(0, math.pi / 2),
        "place": uniform(0, 1, 2),
        "scale": uniform(0.85, 1.0),
        "hue": uniform(0, 2 * math.pi),
        "lightness": background + (2 * up - 1) * contrast,
        "background_hue": uniform(0, 2 * math.pi),
        "background_lightness": background,
        "gradient": uniform(-0.2, 0.2, 2),
        "noise": uniform(0.0, 0.04),
    }


def _paint(labels: Tensor, factors: dict[str, Tensor], size: int, generator: torch.Generator) -> Tensor:
    """The pictures of these classes and factors, uint8 (n, 3, size, size)."""
    n = len(labels)
    axis = (torch.arange(size) + 0.5) / size - 0.5
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy")).flatten(1)  # (2, pixels): x to the right, y down
    cover = _coverage(labels, factors, grid, size, generator)
    slope = factors["gradient"] @ grid
    ink = _colour(factors["hue"], factors["lightness"], 0.12)[:, :, None]
    paper = _colour(factors["background_hue"], factors["background_lightness"], 0.12)[:, :, None] + slope[:, None]
    pixels = paper + cover[:, None] * (ink - paper)
    pixels = pixels + factors["noise"][:, None, None] * torch.randn(n, 3, size * size, generator=generator)
    return pixels.clamp(0, 1).mul(255).round().to(torch.uint8).unflatten(-1, (size, size))


def _coverage(labels: Tensor, factors: dict[str, Tensor], grid: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """How much of each pixel the motif covers, in 0..1, shape (n, pixels)."""
    n = len(labels)
    x, y = _turned(grid[0].expand(n, -1), grid[1].expand(n, -1), factors["angle"][:, None])
    u = torch.stack([x, y]) / factors["spacing"][:, None] + factors["place"].T[:, :, None]  # in cells
    cell = u.floor()
    which = (cell.long() % _CELLS).mul(torch.tensor([1, _CELLS])[:, None, None]).sum(0)  # (n, pixels)

    def of_cell(low: float, high: float) -> Tensor:  # one value per copy, looked up by the pixels of its cell
        return (low + (high - low) * torch.rand(n, _CELLS**2, generator=generator)).gather(1, which)

    radius = 0.46 * factors["scale"][:, None] * of_cell(0.85, 1.0)  # of the motif, in cells; its shift stays in the cell
    room = 0.48 - radius
    x, y = u[0] - cell[0] - 0.5 + room * of_cell(-1, 1), u[1] - cell[1] - 0.5 + room * of_cell(-1, 1)
    x, y = _turned(x / radius, y / radius, of_cell(0, 2 * math.pi))
    distance = torch.empty_like(x)
    for place, motif in enumerate(MOTIFS.values()):
        rows = labels == place
        distance[rows] = motif(x[rows], y[rows])
    pixels = distance * radius * factors["spacing"][:, None] * size  # from the motif's edge, negative inside
    return (0.5 - pixels).clamp(0, 1)


def _turned(x: Tensor, y: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = angle.cos(), angle.sin()
    return cos * x - sin * y, sin * x + cos * y


def _colour(hue: Tensor, lightness: Tensor, chroma: float) -> Tensor:
    """Colours of the given hue around a grey of the given lightness, (n, 3)."""
    return lightness[:, None] + chroma * (hue[:, None] + torch.arange(3) * (2 * math.pi / 3)).cos()
