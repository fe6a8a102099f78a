"""Random changes of a batch of images (k, C, H, W) in 0..1: each sample draws its own parameters.

All draws come from a generator on the images' device, or were made there beforehand (`Drawn`), and nothing waits for that
device. A change that does not happen to a sample is computed for it all the same, and leaves it as it is.
"""

import torch
from torch import Tensor

from entrec.views import colour, geometry
from entrec.views.draws import ATTEMPTS, Jitter, Random, between, centred_boxes, chance, crop_boxes, jitter_factors, numbers
from entrec.views.recipe import Crop, Look


def numbers_of_crop(crop: Crop) -> int:
    """How many random numbers a sample's crop takes."""
    return 0 if crop.scale is None else 2 * ATTEMPTS + 2


def numbers_of_look(look: Look, channels: int) -> int:
    """How many random numbers a sample's look takes: one for each change that may happen, and their parameters."""
    jitter, blur = 9 * (look.jitter > 0), 2 * (look.blur > 0)
    return jitter + blur + (look.flip > 0) + (look.grey > 0 and channels == 3) + (look.solarise > 0)


def random_resized_crop(x: Tensor, crop: Crop, random: Random) -> Tensor:
    """A random part of each image, resized to (k, C, size, size) (see `Crop`)."""
    k, height, width = len(x), x.shape[-2], x.shape[-1]
    if crop.scale is None:
        boxes = centred_boxes(k, height, width, x.device)
    else:
        boxes = crop_boxes(k, height, width, crop.scale, crop.ratio, random)
    return geometry.crop_and_resize(x, boxes, crop.size, crop.filter)


def flip(x: Tensor, p: float, random: Random) -> Tensor:
    """Each image left to right with probability p."""
    return geometry.mirrored(x, chance(len(x), p, random))


def colour_jitter(x: Tensor, look: Look, random: Random) -> Tensor:
    """Brightness, contrast, saturation and hue of each image, in an order of its own, with probability `look.jitter`."""
    jitter = jitter_factors(len(x), look.brightness, look.contrast, look.saturation, look.hue, random)
    applies = chance(len(x), look.jitter, random)
    brightness, contrast, saturation = (torch.where(applies, factor, 1.0) for factor in jitter[:3])
    hue = torch.where(applies, jitter.hue, 0.0)
    return colour.jittered(x, Jitter(brightness, contrast, saturation, hue, jitter.position))


def grey(x: Tensor, p: float, random: Random) -> Tensor:
    """Each colour image without its colour, with probability p."""
    applies = chance(len(x), p, random).to(x)
    return colour.blend(x, 1 - applies, applies, torch.zeros_like(applies))


def blur(x: Tensor, p: float, sigma: tuple[float, float], kernel: int, random: Random) -> Tensor:
    """Each image under a Gaussian blur of a random width, with probability p."""
    widths = between(numbers(1, len(x), random)[0], *sigma)
    return geometry.gaussian_blur(x, widths, kernel, chance(len(x), p, random))


def solarise(x: Tensor, p: float, random: Random) -> Tensor:
    """Each image with its bright half inverted, with probability p."""
    return colour.solarised(x, chance(len(x), p, random))


def normalise(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x - mean) / std for each channel, mean and std of shape (C,)."""
    return (x - mean[:, None, None]) / std[:, None, None]
