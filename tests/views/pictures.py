"""What the tests of views look at."""

from typing import Any

import torch
from torch import Generator, Tensor

from entrec.views import Augment, RecipeName, recipe

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def picture(height: int = 30, width: int = 34) -> Tensor:
    """A colourful image with large and small parts, uint8."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    waves = 0.5 + 0.5 * torch.sin(torch.stack([9 * x + 2 * y, 14 * y, 5 * x * y + 1]))
    return (255 * (0.8 * waves + 0.2 * torch.rand(3, height, width))).to(torch.uint8)


def batch(k: int, channels: int = 3) -> Tensor:
    return torch.randint(0, 256, (k, channels, 20, 24), dtype=torch.uint8)


def augment(name: RecipeName = "simclr", size: int = 16, **more: Any) -> Augment:
    return Augment(recipe(name, size, **more), MEAN, STD)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)
