"""Backbones by name: ours, timm's and torchvision's, for any number of channels and any size of image.

timm and torchvision take seconds to import, so they are imported when they are asked for.
"""

import difflib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from entrec import checks
from entrec.branches.tiny import Tiny

Origin = Literal["entrec", "timm", "torchvision"]
SMALL = 96  # pixels: below, an ImageNet stem, which divides the side by 4, leaves too little
_ALONE: dict[str, Any] = {"aux_logits": False, "init_weights": True}  # GoogLeNet and Inception without their side branches
_MISFITS = (RuntimeError, AssertionError, ValueError, TypeError, IndexError, ZeroDivisionError)


class Backbone(NamedTuple):
    """A network from images (k, C, s, s) to features (k, width), and how to build it without this library.

    Attributes:
        module: the network, in train mode, its weights random.
        width: of the features.
        origin: whose network it is.
        small_stem: whether a ResNet's stem was replaced by one for small images.
        lines: Python that builds the bare network as `model`; it loads `module.state_dict()` strictly.
    """

    module: nn.Module
    width: int
    origin: Origin
    small_stem: bool
    lines: tuple[str, ...]


def build_backbone(name: str, channels: int = 3, image_size: int = 32) -> Backbone:
    """The backbone of that name without its classifier, tried on images of that size before it is returned.

    ResNets get a 3 x 3 stem of stride 1 and no max-pooling for images below 96 pixels, as is usual for CIFAR (SimCLR, Chen et
    al., 2020, Appendix B.9). ViTs interpolate their position embeddings, so that they take crops of several sizes; below 96
    pixels their embeddings are made for `image_size`.

    Args:
        name: `"tiny"` (ours, for small images on one core), a name of timm's, or one of torchvision's; timm's is taken where
            both have it. `"timm/..."` and `"torchvision/..."` ask for one of them.
        channels: of an image.
        image_size: the side of a full view in pixels.

    Raises:
        ValueError: if there is no such name (with the nearest ones), or the network does not take such images.

    Example:
        >>> build_backbone("tiny", channels=1, image_size=28).width
        256
    """
    checks.whole("channels", channels, 1)
    checks.whole("image_size", image_size, 8)
    origin, bare = _find(name)
    if origin == "entrec":
        ours = ("from entrec.branches.tiny import Tiny", f"model = Tiny(channels={channels})")
        return Backbone(Tiny(channels), Tiny.width, origin, False, ours)
    build = _timm if origin == "timm" else _torchvision
    misfit: Exception | None = None
    for module, lines in build(bare, channels, image_size):
        small_stem = image_size < SMALL and _is_resnet(module)
        if small_stem:
            lines = (*lines, _replace_stem(module, channels))
        try:
            width = _width(module, channels, image_size)
        except _MISFITS as error:
            misfit = misfit or error
            continue
        return Backbone(module, width, origin, small_stem, lines)
    raise ValueError(
        f"backbone {name!r} does not take images of {channels} x {image_size} x {image_size}: {misfit} "
        "(any size suits 'tiny' and 'resnet18')"
    ) from misfit


def check_takes(backbone: Backbone, channels: int, size: int) -> None:
    """Try the backbone on crops of another size than the full view's.

    Raises:
        ValueError: it does not take them.
    """
    try:
        _width(backbone.module, channels, size)
    except _MISFITS as error:
        raise ValueError(f"the backbone does not take small crops of {size} x {size} pixels: {error}") from error


def fitting_size(backbone: Backbone, size: int) -> int:
    """The side nearest to `size` that whole patches fill, for a network of patches; `size` itself for others."""
    patch = _patch(backbone.module)
    return max(patch, round(size / patch) * patch)


Candidates = Iterator[tuple[nn.Module, tuple[str, ...]]]


def _timm(name: str, channels: int, image_size: int) -> Candidates:
    """The model with options by which it takes images of any size, then of this one, then with none: those it knows of."""
    import timm

    sized: dict[str, Any] = {"img_size": image_size}
    options = [{"dynamic_img_size": True, **(sized if image_size < SMALL else {})}, sized, {}]
    for option in options:
        arguments = {"num_classes": 0, "in_chans": channels, **option}
        module = _with_known_options(partial(timm.create_model, name, pretrained=False, **arguments), option)
        if module is not None:
            given = ", ".join(f"{key}={value}" for key, value in arguments.items())
            yield module, ("import timm", "from torch import nn", f'model = timm.create_model("{name}", {given})')


def _torchvision(name: str, channels: int, image_size: int) -> Candidates:
    """The model with its last layer (linear, or SqueezeNet's convolution) taken off and its first made for the channels."""
    from torchvision import models

    sized: dict[str, Any] = {"image_size": image_size}
    for option in (sized, _ALONE, {}):
        module = _with_known_options(partial(models.get_model, name, weights=None, **option), option)
        if module is None:
            continue
        given = "".join(f", {key}={value}" for key, value in option.items())
        lines = ["from torch import nn", "from torchvision import models", f'model = models.get_model("{name}"{given})']
        layers = [(path, type(part)) for path, part in module.named_modules() if isinstance(part, nn.Linear | nn.Conv2d)]
        last = next((path for path, kind in reversed(layers) if kind is not nn.Conv2d), layers[-1][0])
        module.set_submodule(last, nn.Identity())
        lines.append(f"{_python(last)} = nn.Identity()")
        stem, first = next((path, part) for path, part in module.named_modules() if isinstance(part, nn.Conv2d))
        if first.in_channels != channels:
            wanted = (
                f"nn.Conv2d({channels}, {first.out_channels}, {first.kernel_size}, {first.stride}, {first.padding}, "
                f"bias={first.bias is not None})"
            )
            module.set_submodule(stem, _convolution_like(first, channels))
            lines.append(f"{_python(stem)} = {wanted}")
        yield module, tuple(lines)
        if option is _ALONE:
            return  # as usual it gives several things in training


def _with_known_options(make: Callable[[], nn.Module], option: dict[str, Any]) -> nn.Module | None:
    """What `make` makes, or nothing where the model has no such option or cannot be made with it."""
    try:
        return make()
    except _MISFITS:
        if not option:
            raise
        return None


def _convolution_like(first: nn.Conv2d, channels: int) -> nn.Conv2d:
    bias = first.bias is not None
    return nn.Conv2d(channels, first.out_channels, first.kernel_size, first.stride, first.padding, bias=bias)  # type: ignore[arg-type]


def _python(path: str) -> str:
    """`features.0.1` as Python: `model.features[0][1]`."""
    return "model" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))


def _is_resnet(module: nn.Module) -> bool:
    """Whether it is timm's or torchvision's ResNet: both have a stem of conv1, bn1 and maxpool."""
    return type(module).__name__ == "ResNet" and all(hasattr(module, part) for part in ("conv1", "bn1", "maxpool"))


def _replace_stem(module: Any, channels: int) -> str:
    width = module.bn1.num_features
    module.conv1, module.maxpool = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.Identity()
    nn.init.kaiming_normal_(module.conv1.weight, mode="fan_out", nonlinearity="relu")
    return f"model.conv1, model.maxpool = nn.Conv2d({channels}, {width}, 3, 1, 1, bias=False), nn.Identity()"


@torch.no_grad()
def _width(module: nn.Module, channels: int, image_size: int) -> int:
    """The width of the features of two images, in eval mode, which leaves the statistics of BatchNorm alone."""
    _check_patches(module, image_size)
    training = module.training
    features = module.eval()(torch.zeros(2, channels, image_size, image_size))
    module.train(training)
    if not isinstance(features, torch.Tensor) or features.ndim != 2 or len(features) != 2:
        shape = tuple(features.shape) if isinstance(features, torch.Tensor) else type(features).__name__
        raise ValueError(f"features of two images must have shape (2, width), got {shape}")
    return int(features.shape[1])


def _check_patches(module: nn.Module, image_size: int) -> None:
    """A network of patches sees the whole image; some would leave out the rest of a division without a word."""
    side = _patch(module)
    if image_size % side:
        below, above = image_size // side * side, (image_size // side + 1) * side
        sizes = f"{below} or {above}" if below else f"{above}"
        raise ValueError(f"its patches are {side} pixels wide: choose an image size of {sizes}, or another patch size")


def _patch(module: nn.Module) -> int:
    """The side of a network's patches in pixels, 1 for networks without."""
    patch = getattr(getattr(module, "patch_embed", None), "patch_size", None)
    side = patch[0] if isinstance(patch, tuple) else patch
    return side if isinstance(side, int) else 1


def _find(name: str) -> tuple[Origin, str]:
    """Whose name it is, and the name there."""
    if name == "tiny":
        return "entrec", name
    prefix, _, bare = name.rpartition("/")
    if prefix not in ("", "timm", "torchvision"):
        raise ValueError(f"backbone must be 'tiny', a name, 'timm/...' or 'torchvision/...', got {name!r}")
    import timm

    if prefix != "torchvision" and timm.is_model(bare):
        return "timm", bare
    theirs = _torchvision_names()
    if prefix != "timm" and bare in theirs:
        return "torchvision", bare
    known = theirs if prefix == "torchvision" else ["tiny", *timm.list_models(), *theirs]
    near = list(dict.fromkeys(difflib.get_close_matches(bare, known, n=5, cutoff=0.5)))
    hint = f"the nearest names are {', '.join(near)}" if near else "timm.list_models() lists the names"
    raise ValueError(f"there is no backbone {name!r}; {hint}")


def _torchvision_names() -> list[str]:
    from torchvision import models

    return list(models.list_models(module=models))
