"""How an image becomes what an exported encoder takes, in torchvision's words, which need nothing of this library."""

from collections.abc import Sequence
from typing import Any

import torch

from entrec.views.augment import Plain, resized_side

# Of the pixel range 0..1. The lines and `Augment.plain` both resize in float32, so that they differ by the order of sums alone,
# 1e-6 or so; rounding to eight bits on the way would be up to 2e-3 off, and a crop one pixel beside it far more.
_ROUNDING = 1e-4

# What a file's pixels become: `entrec.data.files.decode` of three channels or of one, in words that need nothing of it.
_PIXELS = """\
def pixels(image):  # as in training: upright, of 16 bits the 8 high ones, palettes as their colours, no transparency
    if not isinstance(image, Image.Image):
        return v2.functional.to_image(image).expand(CHANNELS, -1, -1)
    kind, image = image.format, ImageOps.exif_transpose(image)
    if image.mode == "F" or image.mode.startswith("I"):
        values, top = np.asarray(image), 1 if image.mode == "F" else 65535
        least, most = values.min(), values.max()
        if not 0 <= least <= most <= top or (image.mode == "I" and 0 < most < 256 and kind not in ("PNG", "PPM")):
            told = ", not all below 256" if top > 1 else ""
            raise ValueError(f"pixels of mode {image.mode} must be within 0 and {top}{told}, got {least!s} to {most!s}")
        image = Image.fromarray((np.rint(255 * values) if image.mode == "F" else values >> 8).astype(np.uint8))
    if image.mode == "P":
        image = image.convert("RGBA")
    return v2.functional.to_image(image.convert(MODE))
"""
_MODES = {1: '"L"', 3: '"RGB"'}


def transform_lines(mean: Sequence[float], std: Sequence[float], size: int) -> tuple[str, ...]:
    """Python that builds `transform`, from a PIL image or a uint8 tensor (C, H, W) to the encoder's input (C, size, size).

    PIL images of any mode become grey for an encoder of one channel and RGB for one of three, as files do in training; other
    encoders take tensors of as many channels as they have.
    """
    side, square = resized_side(size), f"({size}, {size})"
    if side is None:
        resizing: tuple[str, ...] = (f"view = v2.Resize({square}, antialias=True)",)
    else:  # an image that has the size already stays as it is
        resizing = (
            f"centre = v2.Compose([v2.Resize({side}, antialias=True), v2.CenterCrop({size})])",
            f"view = v2.Lambda(lambda image: image if image.shape[-2:] == {square} else centre(image))",
        )
    imports, converting, to_image = _converting(len(mean))
    normalise = f"v2.Normalize(mean={list(mean)}, std={list(std)})"
    to_floats = f"{to_image}, v2.ToDtype(torch.float32, scale=True)"
    compose = f"transform = v2.Compose([{to_floats}, view, {normalise}, v2.ToPureTensor()])"
    return (*imports, "from torchvision.transforms import v2", *converting, *resizing, compose)


def _converting(channels: int) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Imports, lines and the first step of the transform, which makes an image of these channels of whatever is given."""
    if channels not in _MODES:
        return ("import torch",), (), "v2.ToImage()"
    lines = _PIXELS.replace("CHANNELS", str(channels)).replace("MODE", _MODES[channels]).split("\n")
    return ("import numpy as np", "import torch", "from PIL import Image, ImageOps"), tuple(lines), "v2.Lambda(pixels)"


def check_transform(lines: Sequence[str], plain: Plain, std: Sequence[float]) -> None:
    """Whether the lines' `transform` does as `plain` does to random images: one of the view's size, and one of another.

    Raises:
        ValueError: they differ by more than rounding does.
    """
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor(std)[:, None, None]
    for height, width in ((plain.size, plain.size), (plain.size + 9, 2 * plain.size - 3)):
        image = torch.randint(0, 256, (len(std), height, width), dtype=torch.uint8, generator=generator)
        difference = float(((names["transform"](image) - plain(image[None])[0]) * scale).abs().max())
        if not difference <= _ROUNDING:
            raise ValueError(
                f"the lines that prepare an image differ from the evaluation view by {difference:.2g} of the pixel range, for "
                f"an image of {height} x {width} pixels. Nothing was written"
            )
