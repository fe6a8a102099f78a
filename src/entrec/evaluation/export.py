"""An encoder as a plain file of weights, which its own library loads."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import entrec
from entrec import checks
from entrec.evaluation.features import Features, evaluating, require_numbers
from entrec.evaluation.tensors import write_tensors
from entrec.evaluation.transform import check_transform, transform_lines
from entrec.files import appearing, refuse_existing, require_writable
from entrec.views.augment import Augment, Plain
from entrec.views.recipe import recipe as recipe_of

Origin = Literal["entrec", "timm", "torchvision"]
Who = Literal["student", "teacher"]
_ROUNDING = 1e-5  # between the features of the two modules, relative to the largest


class Exported(NamedTuple):
    """A file of weights, how to load it, and how to prepare images for it."""

    path: Path
    who: Who  # whose weights they are
    keys: tuple[str, ...]  # of the state dict in the file
    lines: tuple[str, ...]  # Python that builds the encoder as `model`, loads the file strictly and sets eval mode
    transform: tuple[str, ...]  # Python that builds `transform`, from a PIL image of any mode or a uint8 tensor to its input
    note: str  # what else to know, in words; may be empty


class _Recipe(NamedTuple):
    """Lines that build a model, and lines that take its classifier off: between the two, it loads the file."""

    build: tuple[str, ...]
    behead: tuple[str, ...]
    classifier: dict[str, Tensor]  # zeros for the weights that the encoder does not have

    def lines(self, path: Path) -> tuple[str, ...]:
        if path.suffix == ".safetensors":
            load = ("from safetensors.torch import load_file", f"weights = load_file({str(path)!r})")
        else:
            load = ("import torch", f'weights = torch.load({str(path)!r}, map_location="cpu", weights_only=True)')
        return (*self.build, *load, "model.load_state_dict(weights, strict=True)", *self.behead, "model.eval()")


def export_encoder(
    module: nn.Module,
    backbone_name: str,
    origin: Origin,
    path: Path | str,
    *,
    channels: int,
    image_size: int,
    mean: Sequence[float],
    std: Sequence[float],
    small_stem: bool,
    lines: Sequence[str],
    who: Who,
    reference_images: Tensor,
    overwrite: bool = False,
) -> Exported:
    """Write an encoder's weights under the names that its own library gives them, and check that they load there.

    The encoder is rebuilt from the lines that are returned, without this library unless it is ours, loads the file with
    `strict=True`, and must give the reference images the features that `module` gives them, in eval mode, to 1e-5 of the
    largest. The lines that prepare an image must do as `entrec.views.Augment.plain` does, up to rounding. Otherwise there is
    an error and no file. Torch's random state is left as it was.

    Args:
        module: the encoder, images to features; a `torch.compile` or DistributedDataParallel round it is taken off.
        backbone_name: as `entrec.branches.build_backbone` takes it; written into the file.
        origin: whose network it is. A torchvision network has a classifier, which `module` has not: its weights are zeros in
            the file.
        path: NAME.safetensors, or NAME.pth or NAME.pt for `torch.load(..., weights_only=True)`.
        channels: of an image.
        image_size: side of the images it was trained on, in pixels.
        mean: of each channel of pixels in 0..1, which is subtracted from them; written into the file, as JSON.
        std: by which they are then divided, likewise.
        small_stem: whether a ResNet's stem was replaced by one for small images.
        lines: Python that builds the bare network as `model`, the `lines` of a `Backbone`.
        who: whether it is the student or the teacher.
        reference_images: a batch (k, C, H, W) of prepared images on the module's device.
        overwrite: replace a file that exists.
    """
    path = Path(path)
    checks.choice("origin", origin, Origin)
    checks.choice("who", who, Who)
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ValueError(f"path (--out) must end in .safetensors, .pth or .pt, got {str(path)!r}")
    if len(mean) != channels:
        raise ValueError(f"mean must have a number for each of {channels} channels, got {list(mean)}")
    if not overwrite:
        refuse_existing(path)
    require_writable(path)
    plain = Plain(Augment(recipe_of("none", image_size, 1), mean, std), image_size)
    module, transform = _unwrapped(module), transform_lines(mean, std, image_size)
    check_transform(transform, plain, std)
    recipe = _recipe(module, origin, lines)
    weights = {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in module.state_dict().items()}
    weights |= recipe.classifier
    facts = {"entrec": entrec.__version__, "backbone": backbone_name, "origin": origin, "who": who}
    facts |= {"channels": str(channels), "image_size": str(image_size), "small_stem": str(small_stem).lower()}
    facts |= {"mean": json.dumps(list(mean)), "std": json.dumps(list(std)), "view": plain.rule}
    with appearing(path) as unfinished:
        if path.suffix == ".safetensors":
            write_tensors(weights, unfinished, facts)
        else:
            torch.save(weights, unfinished)
        _check_features(module, _run(recipe.lines(unfinished)), reference_images)
    note = _note(backbone_name, origin, image_size, small_stem, tuple(recipe.classifier))
    return Exported(path, who, tuple(weights), recipe.lines(path), transform, note)


def _unwrapped(module: nn.Module) -> nn.Module:
    """The module under torch.compile and DistributedDataParallel, whose names have no prefix."""
    while True:
        if isinstance(module, DistributedDataParallel):
            module = module.module
        elif isinstance(compiled := getattr(module, "_orig_mod", None), nn.Module):
            module = compiled
        else:
            return module


def _recipe(module: nn.Module, origin: Origin, lines: Sequence[str]) -> _Recipe:
    """The lines, parted where torchvision's classifier comes off: the layer that the model is born with and `module` lacks."""
    first = next((i for i, line in enumerate(lines) if line.startswith("model = ")), None)
    if first is None:
        raise ValueError(f"lines must build the encoder as `model = ...`, got {list(lines)}")
    if origin != "torchvision":
        return _Recipe(tuple(lines), (), {})
    own = module.state_dict().keys()
    missing = {name: x for name, x in _run(lines[: first + 1]).state_dict().items() if name not in own}
    layers = {name.rpartition(".")[0] for name in missing}
    if len(layers) > 1:
        raise ValueError(f"module must be the network of `lines` without its last layer, but lacks {', '.join(sorted(layers))}")
    behead = tuple(line for line in lines for layer in layers if line.startswith(f"{_python(layer)} = "))
    build = tuple(line for line in lines if line not in behead)
    return _Recipe(build, behead, {name: torch.zeros_like(x) for name, x in missing.items()})


def _python(path: str) -> str:
    """`heads.0` as Python: `model.heads[0]`."""
    return "model" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))


def _run(lines: Sequence[str]) -> nn.Module:
    """The `model` that the lines make."""
    names: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):  # a network's first weights are drawn, and then replaced
        exec("\n".join(lines), names)
    model: nn.Module = names["model"]
    return model


@torch.no_grad()
def _check_features(module: nn.Module, rebuilt: nn.Module, images: Tensor) -> None:
    rebuilt.to(images.device)
    with evaluating(module):
        wanted = module(images)
    require_numbers(Features(wanted, torch.full((len(wanted),), -1)), module)
    difference, largest = (rebuilt(images) - wanted).abs().max(), wanted.abs().max()
    if not difference <= _ROUNDING * largest:  # nor may either be NaN
        raise ValueError(
            f"the rebuilt encoder's features differ from the module's by up to {float(difference):.2g}, where the largest is "
            f"{float(largest):.2g}: do `lines` build this module? Nothing was written"
        )


def _note(name: str, origin: Origin, image_size: int, small_stem: bool, zeros: tuple[str, ...]) -> str:
    notes = []
    if zeros:
        notes.append(f"{origin}'s {name} has a classifier, which was not trained: {' and '.join(zeros)} are zeros.")
    if small_stem:
        notes.append(f"The stem is one for images of {image_size} pixels (3 x 3, no max-pooling), which the lines build.")
    return " ".join(notes)
