"""From images to views: whole batches on their device, or one image at a time in a worker and the rest on the device."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Generator, Tensor
from torch.nn import functional

from entrec import checks
from entrec.views import ops
from entrec.views.draws import Drawn, Random, centred_box, crop_boxes, numbers
from entrec.views.recipe import Crop, Recipe, View

Levels = Sequence[float]
SQUARE = (1.0, 1.0)
WHOLE_VIEW = 96  # pixels a side; from here on an evaluation view is the centre of a larger one, as on ImageNet


class Augment:
    """The views of a recipe, normalised: float32, on the device of the images, other parameters for each sample.

    Small images come as whole batches: `augment(images, generator)`. Of large images, each of its own size, workers cut the
    crops, `augment.crop(image, generator)`, and the device does the rest, `augment.finish(crops, generator)`. The two agree
    in law, up to the rounding of the crops to eight bits. Every call is a function of its images and its generator; what is
    random about it can also be drawn first, `numbers = augment.draw(k, generator)`, and the rest be compiled:
    `augment.made(images, numbers)`, `augment.finished(crops, numbers)`.

    Hue, saturation and grey need three channels. For other images they are off, which `notice` then says.

    Args:
        recipe: what the views are (see `entrec.views.recipe`).
        mean: of each channel of pixels in 0..1. Where a sample is several images: of all, or a sequence for each of them.
        std: standard deviations, likewise.

    Example:
        >>> from entrec.views import recipe
        >>> augment = Augment(recipe("moco", size=32, small_crops=1), mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
        >>> images = torch.zeros(4, 3, 40, 50, dtype=torch.uint8)
        >>> [tuple(view.shape) for view in augment(images, torch.Generator().manual_seed(0))]
        [(4, 3, 32, 32), (4, 3, 32, 32), (4, 3, 14, 14)]
    """

    def __init__(self, recipe: Recipe, mean: Levels | Sequence[Levels], std: Levels | Sequence[Levels]) -> None:
        self.recipe = recipe
        self._means, self._stds = _each_image("mean", mean), _each_image("std", std)
        if [len(m) for m in self._means] != [len(s) for s in self._stds]:
            raise ValueError(f"mean and std must have as many channels as each other, got {mean} and {std}")
        if not all(bool((s > 0).all()) for s in self._stds):
            raise ValueError(f"std must be positive, got {std}")
        self._levels: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}
        self.notice = _notice(recipe, [len(m) for m in self._means])

    def __getstate__(self) -> dict[str, Any]:
        """To worker processes, which have no part in what is on a device."""
        return {**self.__dict__, "_levels": {}}

    def __call__(self, images: Tensor, generator: Generator) -> tuple[Tensor, ...]:
        """Every view of images (k, C, H, W), uint8 or float in 0..1: one (k, C, size, size) each."""
        _require_together(images, generator)
        return self.made(images, self.draw(len(images), generator))

    def draw(self, k: int, generator: Generator) -> tuple[Tensor, ...]:
        """All that is random about the views of k images: uniform numbers (n, k) for each view."""
        return _drawn(
            [ops.numbers_of_crop(view.crop) + self._of_look(v) for v, view in enumerate(self.recipe.views)], k, generator
        )

    def draw_looks(self, crops: int, k: int, generator: Generator) -> tuple[Tensor, ...]:
        """What is random about that many crops of k images once they are cut: uniform numbers (n, k) for each."""
        return _drawn([self._of_look(v) for v in range(crops)], k, generator)

    def made(self, images: Tensor, numbers: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The views of images (k, C, H, W) that their numbers (see `draw`) say; nothing is random about it."""
        return tuple(self.view(view, images, own) for view, own in zip(self.recipe.views, numbers, strict=True))

    def view(self, view: View, images: Tensor, numbers: Tensor) -> Tensor:
        """One of the views of images (k, C, H, W)."""
        if len(self._means) > 1:
            raise ValueError(f"mean and std are those of {len(self._means)} images a sample: use `each`, got one tensor")
        random = Drawn(numbers)
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            crop = ops.random_resized_crop(self._ready(images, 0), view.crop, random)
            return self._finish(crop, view, 0, random)

    def each(self, images: tuple[Tensor, ...], generator: Generator) -> tuple[Tensor, ...]:
        """One view of each of the images that a sample is, (k, C_v, H_v, W_v): view v for image v, the views in turns."""
        _require_together(images[0], generator)
        with _full_precision(images[0]):
            ready = (self._ready(image, v % len(self._means)) for v, image in enumerate(images))
            crops = [ops.random_resized_crop(x, self.of(v).crop, generator) for v, x in enumerate(ready)]
            return tuple(self._finish(crop, self.of(v), v % len(self._means), generator) for v, crop in enumerate(crops))

    def crop(self, image: Tensor | tuple[Tensor, ...], generator: Generator) -> tuple[Tensor, ...]:
        """One image (C, H, W) of any size, on the CPU: its crop for each view, (C, size, size), in the image's dtype.

        Of a sample that is several images: one crop of each, view v for image v.
        """
        if isinstance(image, Tensor):
            return tuple(_cut(image, view.crop, generator) for view in self.recipe.views)
        return tuple(_cut(one, self.of(v).crop, generator) for v, one in enumerate(image))

    def finish(self, crops: tuple[Tensor, ...], generator: Generator) -> tuple[Tensor, ...]:
        """What `crop` left to do, for a batch of its crops, (k, C, size, size) each, on their device."""
        _require_together(crops[0], generator)
        return self.finished(crops, self.draw_looks(len(crops), len(crops[0]), generator))

    def finished(self, crops: tuple[Tensor, ...], numbers: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What their numbers (see `draw_looks`) make of a batch of crops; nothing is random about it."""
        given = enumerate(zip(crops, numbers, strict=True))
        return tuple(self.look(self.of(v), crop, own, v % len(self._means)) for v, (crop, own) in given)

    def look(self, view: View, crops: Tensor, numbers: Tensor, image: int = 0) -> Tensor:
        """One of the views from its crops (k, C, size, size); `image` says which one of a sample they are of."""
        with torch.no_grad(), torch.autocast(crops.device.type, enabled=False):
            return self._finish(self._ready(crops, image), view, image, Drawn(numbers))

    def plain(self, images: Tensor, size: int, image: int = 0) -> Tensor:
        """The view for evaluation of images (k, C, H, W), without chance, normalised: (k, C, size, size).

        Images of that size stay as they are. From 96 pixels on the shorter side is resized to 256/224 of the size and the
        centre taken, as on ImageNet; smaller views are the whole image, resized. `image` says which one of a sample it is.
        """
        checks.whole("size", size, 1)
        with _full_precision(images):
            return self._normalise(_centre(self._ready(images, image), size), image)

    def first(self, n: int) -> "Augment":
        """The same with the first n views, which take turns where there are fewer."""
        chosen = Recipe(tuple(self.of(v) for v in range(n)), n)
        return Augment(chosen, *([tuple(x.tolist()) for x in levels] for levels in (self._means, self._stds)))

    @property
    def images(self) -> int:
        """How many images a sample is, each with a mean and a standard deviation of its own."""
        return len(self._means)

    def of(self, v: int) -> View:
        """View v; where a sample is more images than the recipe has views, these take turns."""
        return self.recipe.views[v % len(self.recipe.views)]

    def _of_look(self, v: int) -> int:
        """Numbers that the look of view v takes."""
        return ops.numbers_of_look(self.of(v).look, len(self._means[v % len(self._means)]))

    def _ready(self, images: Tensor, image: int) -> Tensor:
        """Images of the right kind, in 0..1."""
        x = _pixels(images)
        channels = len(self._means[image])
        if x.shape[1] != channels:
            raise ValueError(f"mean and std are those of {channels} channels, got images of shape {tuple(x.shape)}")
        return x

    def _finish(self, x: Tensor, view: View, image: int, random: Random) -> Tensor:
        """The look of crops x in 0..1, normalised; what never happens costs nothing."""
        look = view.look
        if look.flip > 0:
            x = ops.flip(x, look.flip, random)
        if look.jitter > 0:
            x = ops.colour_jitter(x, look, random)
        if look.grey > 0 and x.shape[1] == 3:
            x = ops.grey(x, look.grey, random)
        if look.blur > 0:
            x = ops.blur(x, look.blur, look.sigma, look.kernel, random)
        if look.solarise > 0:
            x = ops.solarise(x, look.solarise, random)
        return self._normalise(x, image)

    def _normalise(self, x: Tensor, image: int) -> Tensor:
        if (image, x.device) not in self._levels:
            self.prepare(x.device)
        return ops.normalise(x, *self._levels[image, x.device])

    def prepare(self, device: torch.device) -> None:
        """Copy means and standard deviations to a device: once, as it waits for the device, and no graph can hold it."""
        for image, (mean, std) in enumerate(zip(self._means, self._stds, strict=True)):
            self._levels[image, device] = (mean.to(device), std.to(device))


@dataclass(frozen=True)
class Plain:
    """`Augment.plain` at one size, as a callable that can be sent to worker processes.

    Example:
        >>> from entrec.views import recipe
        >>> plain = Plain(Augment(recipe("none", size=32, views=1), mean=(0.5,), std=(0.2,)), 32)
        >>> tuple(plain(torch.zeros(4, 1, 40, 50, dtype=torch.uint8)).shape)
        (4, 1, 32, 32)
        >>> plain.rule
        'views of 32 x 32 pixels: the whole image, resized (bilinear, antialiased)'
    """

    augment: Augment
    size: int

    def __call__(self, images: Tensor) -> Tensor:
        """The view for evaluation of images (k, C, H, W): (k, C, size, size)."""
        return self.augment.plain(images, self.size)

    @property
    def rule(self) -> str:
        """What it takes of an image, in words."""
        side = resized_side(self.size)
        how = "(bilinear, antialiased)"
        whole, centre = f"the whole image, resized {how}", f"the centre of the image, its shorter side resized to {side} {how}"
        taken = whole if side is None else f"{centre}, or the image as it is where that is its size"
        return f"views of {self.size} x {self.size} pixels: {taken}"


def resized_side(size: int) -> int | None:
    """The shorter side of the image that an evaluation view of this size is the centre of; None where it is all of it."""
    return None if size < WHOLE_VIEW else round(size * 256 / 224)


def _each_image(name: str, levels: Levels | Sequence[Levels]) -> tuple[Tensor, ...]:
    """The levels of each image of a sample, each (C,)."""
    if len(levels) == 0:
        raise ValueError(f"{name} must have a number for each channel, got none")
    nested = cast("Sequence[Levels]", levels if isinstance(levels[0], Sequence) else [levels])
    return tuple(torch.tensor(one, dtype=torch.float32) for one in nested)


def _notice(recipe: Recipe, channels: list[int]) -> str:
    """What is off for images without three channels, or nothing."""
    looks = [view.look for view in recipe.views]
    jitter = [look for look in looks if look.jitter > 0]
    wanted = {
        "hue": any(look.hue > 0 for look in jitter),
        "saturation": any(look.saturation > 0 for look in jitter),
        "grey": any(look.grey > 0 for look in looks),
    }
    off = [name for name, is_wanted in wanted.items() if is_wanted]
    others = [str(c) for c in channels if c != 3]
    if not off or not others:
        return ""
    return f"{', '.join(off)} need 3 channels and are off for images of {' and '.join(others)} (brightness and contrast stay)"


def _drawn(counts: list[int], k: int, generator: Generator) -> tuple[Tensor, ...]:
    """As many numbers for each of k samples, in one call for all."""
    return torch.split(numbers(sum(counts), k, generator), counts)


def _require_together(images: Tensor, generator: Generator) -> None:
    if images.device.type != generator.device.type:
        raise ValueError(f"images and generator must be on the same device, got {images.device} and {generator.device}")


def _pixels(images: Tensor) -> Tensor:
    """A batch of images (k, C, H, W) as float32 in 0..1."""
    if images.ndim != 4:
        raise ValueError(f"images must have shape (k, C, H, W), got {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return images.float().div_(255)
    if not images.dtype.is_floating_point:
        raise TypeError(f"images must be uint8, or floating-point in 0..1, got {images.dtype}")
    return images.float()


@contextmanager
def _full_precision(images: Tensor) -> Iterator[None]:
    """No gradients, and float32 even where the caller's encoder runs in less."""
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        yield


def _cut(image: Tensor, crop: Crop, generator: Generator) -> Tensor:
    """A random crop of one image (C, H, W), by the law of `ops.random_resized_crop`."""
    if image.ndim != 3:
        raise ValueError(f"an image must have shape (C, H, W), got {tuple(image.shape)}")
    height, width = image.shape[-2:]
    if crop.scale is None:
        top, left, h, w = centred_box(height, width, SQUARE)
    else:
        boxes = crop_boxes(1, height, width, crop.scale, crop.ratio, generator)
        top, left, h, w = (int(side) for side in boxes)
    part = image[None, :, top : top + h, left : left + w]
    resized = functional.interpolate(part, (crop.size, crop.size), mode=crop.filter, antialias=True)[0]
    return resized.clamp(0, 1) if image.dtype.is_floating_point else resized


def _centre(x: Tensor, size: int) -> Tensor:
    height, width = x.shape[-2:]
    if height == width == size:
        return x
    side = resized_side(size)
    if side is None:
        return functional.interpolate(x, (size, size), mode="bilinear", antialias=True)
    shorter = min(height, width)
    h, w = side * height // shorter, side * width // shorter
    x = functional.interpolate(x, (h, w), mode="bilinear", antialias=True)
    top, left = round((h - size) / 2), round((w - size) / 2)
    return x[..., top : top + size, left : left + size]
