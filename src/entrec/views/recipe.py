"""What a view is: which crop of the image, and how it looks; and the recipes that the methods published."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, get_args

from entrec import checks

Filter = Literal["bilinear", "bicubic"]
RecipeName = Literal["simclr", "byol", "moco", "swav", "dino", "light", "none"]
Range = tuple[float, float]

SMALL_IMAGE = 64  # pixels a side; below, the recipes follow what is done on CIFAR


@dataclass(frozen=True)
class Crop:
    """A random part of the image, resized to a square: the law of torchvision's `RandomResizedCrop`.

    Args:
        size: side of the view, in pixels.
        scale: bounds of the crop's area, as a share of the image's; `None` takes the largest centred square, always.
        ratio: bounds of width / height, whose logarithm is uniform.
        filter: of the antialiased resize.
    """

    size: int
    scale: Range | None = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    filter: Filter = "bilinear"

    def __post_init__(self) -> None:
        checks.whole("size of a crop", self.size, 1)
        checks.choice("filter of a crop", self.filter, Filter)
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale of a crop must be (low, high) with 0 < low <= high <= 1, got {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1] < float("inf"):
            raise ValueError(f"ratio of a crop must be (low, high) with 0 < low <= high, got {self.ratio}")


@dataclass(frozen=True)
class Look:
    """What happens to a crop, in this order; each part to each sample by itself, with its own probability.

    Args:
        flip: probability of a mirror image, left to right.
        jitter: probability of the colour jitter: the four changes below, in a random order.
        brightness: the factor is uniform in [max(0, 1 - brightness), 1 + brightness].
        contrast: the same for contrast.
        saturation: the same for saturation.
        hue: the shift is uniform in [-hue, hue], in turns of the colour circle; at most 0.5.
        grey: probability of losing all colour.
        blur: probability of a Gaussian blur.
        sigma: bounds of the blur's standard deviation, in pixels.
        kernel: taps of the blur, an odd number.
        solarise: probability of inverting all values of one half and more.
    """

    flip: float = 0.0
    jitter: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    grey: float = 0.0
    blur: float = 0.0
    sigma: Range = (0.1, 2.0)
    kernel: int = 23
    solarise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flip", "jitter", "grey", "blur", "solarise"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability and must lie in 0..1, got {getattr(self, name)}")
        for name in ("brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"hue must lie in 0..0.5, got {self.hue}")
        if not 0 < self.sigma[0] <= self.sigma[1] < float("inf"):
            raise ValueError(f"sigma must be (low, high) with 0 < low <= high, got {self.sigma}")
        if checks.whole("kernel", self.kernel, 1) % 2 == 0:
            raise ValueError(f"kernel must be an odd number of taps, got {self.kernel}")


@dataclass(frozen=True)
class View:
    """One view of an image: a crop and its look."""

    crop: Crop
    look: Look = Look()

    def __post_init__(self) -> None:
        if self.look.blur > 0 and self.look.kernel // 2 >= self.crop.size:
            raise ValueError(
                f"a blur of {self.look.kernel} taps reflects at the border and needs a view of more than "
                f"{self.look.kernel // 2} pixels, got {self.crop.size}"
            )


@dataclass(frozen=True)
class Recipe:
    """The views of a sample; the first `full` have full size (a teacher sees these only), the others are small crops."""

    views: tuple[View, ...]
    full: int

    def __post_init__(self) -> None:
        if not 1 <= checks.whole("full", self.full, 1) <= len(self.views):
            raise ValueError(f"full must lie in 1..{len(self.views)}, the number of views, got {self.full}")


@dataclass(frozen=True)
class _Published:
    """The parts of a recipe: full views take the looks in turn."""

    crop: Crop
    looks: tuple[Look, ...]
    small_scale: Range
    small_look: Look


def _colour(strength: float, saturation: float, blur: float, solarise: float = 0.0) -> Look:
    """Flip, jitter with a hue of a quarter of the strength, and grey, as all recipes have them."""
    return Look(0.5, 0.8, strength, strength, saturation, strength / 4, 0.2, blur, solarise=solarise)


def _simclr(size: int) -> _Published:
    strength = 0.4 if size < SMALL_IMAGE else 0.8
    look = _colour(strength, strength, blur=0.5)
    return _Published(Crop(size, (0.08, 1.0), filter="bicubic"), (look,), (0.05, 0.14), look)


def _byol(size: int) -> _Published:
    looks = (_colour(0.4, 0.2, blur=1.0), _colour(0.4, 0.2, blur=0.1, solarise=0.2))
    return _Published(Crop(size, (0.08, 1.0), filter="bicubic"), looks, (0.05, 0.14), _colour(0.4, 0.2, blur=0.5))


def _moco(size: int) -> _Published:
    look = _colour(0.4, 0.4, blur=0.5)
    return _Published(Crop(size, (0.2, 1.0)), (look,), (0.05, 0.14), look)


def _swav(size: int) -> _Published:
    return replace(_simclr(size), crop=Crop(size, (0.14, 1.0)))


def _dino(size: int, small_crops: bool) -> _Published:
    crop = Crop(size, (0.4, 1.0) if small_crops else (0.14, 1.0), filter="bicubic")
    return replace(_byol(size), crop=crop, small_scale=(0.05, 0.4))


def _plain(size: int, scale: Range | None, look: Look) -> _Published:
    return _Published(Crop(size, scale), (look,), (0.05, 0.14), look)


def _blurred(look: Look, size: int, image: int) -> Look:
    """The blur with a tenth of the view's side as its kernel, 23 taps at 224 pixels; none for small images."""
    return replace(look, blur=look.blur if image >= SMALL_IMAGE else 0.0, kernel=2 * (size // 20) + 1)


def recipe(
    name: RecipeName,
    size: int,
    views: int = 2,
    small_crops: int = 0,
    small_size: int | None = None,
    min_area: float | None = None,
) -> Recipe:
    """The published views of a method.

    All flip half of the images, jitter the colours of 80%, and make 20% grey; they differ in the rest (at 224 pixels):

    - `"simclr"`: Chen et al. (2020), appendix A: area 0.08..1, jitter 0.8, 0.8, 0.8, 0.2, half blurred.
    - `"byol"`: Grill et al. (2020), appendix B: area 0.08..1, jitter 0.4, 0.4, 0.2, 0.1; the first view is always blurred,
      the second in 10%, and solarised in 20%.
    - `"moco"`: Chen et al. (2020), MoCo v2 and its code: area 0.2..1, jitter 0.4, 0.4, 0.4, 0.1, half blurred.
    - `"swav"`: Caron et al. (2020) and its code: area 0.14..1, SimCLR's look; small crops of area 0.05..0.14.
    - `"dino"`: Caron et al. (2021) and its code: BYOL's look; area 0.4..1 beside small crops of 0.05..0.4, half blurred;
      without small crops area 0.14..1, as the code advises.
    - `"light"`: ours: area 0.2..1 and the flip, no change of colour.
    - `"none"`: the largest centred square, resized, for samples that are several views already.

    SimCLR, BYOL and DINO resize by cubic interpolation, the others by linear; both are antialiased here. The blur's kernel
    is a tenth of the view's side, as SimCLR has it, with a standard deviation of 0.1 to 2 pixels.

    Images under 64 pixels follow what is done on CIFAR (SimCLR, appendix B.9): no blur, and half the jitter where it is
    SimCLR's. Crops of full size then have 0.2 of the area at least: 0.08 of 32 pixels a side would be 9 pixels a side.

    Where no small crops were published with a recipe they are SwAV's, which its authors use for SimCLR too, with the
    recipe's own look (for BYOL: half blurred, not solarised, as in DINO).

    Args:
        name: of the method.
        size: side of a full view, in pixels.
        views: number of full views; BYOL's and DINO's two kinds take turns.
        small_crops: number of small views that follow them.
        small_size: side of a small view; by default 96/224 of `size`.
        min_area: the smallest area of a full view's crop, as a share of the image's; by default the recipe's.

    Example:
        >>> [view.crop.size for view in recipe("swav", 224, small_crops=2).views]
        [224, 224, 96, 96]
    """
    checks.whole("size", size, 1)
    checks.whole("views", views, 1)
    checks.whole("small_crops", small_crops, 0)
    small_size = max(1, round(96 / 224 * size)) if small_size is None else checks.whole("small_size", small_size, 1)
    published = _published(name, size, small_crops > 0)
    crop = published.crop
    if crop.scale is None and min_area is not None:
        raise ValueError(f"recipe {name!r} takes the whole image, so there is no smallest crop, got {min_area}")
    if crop.scale is not None and (size < SMALL_IMAGE or min_area is not None):
        crop = replace(crop, scale=(max(0.2, crop.scale[0]) if min_area is None else min_area, 1.0))
    full = [View(crop, _blurred(look, size, size)) for look in published.looks]
    small = View(
        replace(crop, size=small_size, scale=crop.scale and published.small_scale),
        _blurred(published.small_look, small_size, size),
    )
    return Recipe((*(full[v % len(full)] for v in range(views)), *[small] * small_crops), views)


def _published(name: str, size: int, small_crops: bool) -> _Published:
    makers: dict[str, Callable[[], _Published]] = {
        "simclr": lambda: _simclr(size),
        "byol": lambda: _byol(size),
        "moco": lambda: _moco(size),
        "swav": lambda: _swav(size),
        "dino": lambda: _dino(size, small_crops),
        "light": lambda: _plain(size, (0.2, 1.0), Look(flip=0.5)),
        "none": lambda: _plain(size, None, Look()),
    }
    if name not in makers:
        nearest = get_close_matches(str(name), makers, n=1, cutoff=0.4)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ValueError(f"recipe must be one of {', '.join(map(repr, get_args(RecipeName)))}, got {name!r}{hint}")
    return makers[name]()
