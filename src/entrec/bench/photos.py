"""JPEG files of ImageNet's size, for timing what decodes them: about 500 x 375 pixels and 110 kB each."""

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

_WIDTH, _HEIGHT, _QUALITY = 500, 375, 95
_OCTAVES = 9  # from the whole picture down to single pixels
_FALL = 0.83  # of the contrast from one octave to the next finer one: with it files have the size that is wanted
_CLASSES = 10
_DIFFERENT = 32  # pictures; decoding takes as long for the same one again


def make_photos(folder: Path, n: int) -> Path:
    """Write n files CLASS/NUMBER.jpg: clouds of colour, with detail at every scale as photographs have it."""
    generator = torch.Generator().manual_seed(0)
    contents: list[bytes] = []
    for number in range(n):
        path = folder / f"class{number % _CLASSES}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if len(contents) < _DIFFERENT:
            Image.fromarray(_picture(generator).permute(1, 2, 0).numpy()).save(path, quality=_QUALITY)
            contents.append(path.read_bytes())
        else:
            path.write_bytes(contents[number % _DIFFERENT])
    return folder


def _picture(generator: torch.Generator) -> Tensor:
    """Uint8 (3, H, W)."""
    found = torch.zeros(3, _HEIGHT, _WIDTH)
    for octave in range(_OCTAVES):
        side = 2 ** (_OCTAVES - 1 - octave)
        coarse = torch.randn(1, 3, -(-_HEIGHT // side) + 1, -(-_WIDTH // side) + 1, generator=generator)
        fine = interpolate(coarse, scale_factor=side, mode="bicubic")[0, :, :_HEIGHT, :_WIDTH]
        found += _FALL**octave * fine
    return (128 + 45 * found / found.std()).clamp(0, 255).to(torch.uint8)
