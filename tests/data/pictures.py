"""Small pictures for the tests of data."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int = 0, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Image.Image:
    """Random pixels; `size` is width and height."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def save(path: Path, seed: int = 0, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Path:
    """A picture in a file, in folders that are made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed, size, mode).save(path)
    return path


def truncate(path: Path) -> Path:
    """Half of the file is lost."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path
