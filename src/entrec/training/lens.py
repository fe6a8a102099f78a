"""The lens on an encoder: of a run, or any of timm's or torchvision's with weights from elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from entrec.branches.backbones import build_backbone
from entrec.data import Source, open_source
from entrec.lens.embeddings import weights_in
from entrec.lens.examine import Examined, examine
from entrec.methods import Seen
from entrec.training.held_out import HeldOut
from entrec.training.runs import ready
from entrec.views.augment import Augment
from entrec.views.recipe import recipe

_WRAPPERS = ("module.", "model.", "backbone.", "encoder.", "_orig_mod.")
_HEADS = ("fc.", "head.", "classifier.", "heads.")


class _Features(nn.Module):
    """An encoder as the lens sees a method: by its features."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def see(self, images: Tensor, view: int = 0) -> Seen:
        return Seen(self.encoder(images).flatten(1))


def examine_encoder(
    weights: Path | str,
    *,
    data: Any = None,
    backbone: str | None = None,
    image_size: int | None = None,
    kappa: float = 10.0,
    device: str = "auto",
) -> Examined:
    """Look at the features of two views (SimCLR's) of each image, by a trained encoder.

    Args:
        weights: a run's folder or checkpoint of entrec's; or, with `backbone`, a state dict (.pt, .pth, .safetensors).
        data: as for `entrec.train`; a run's own if not given. The test split is looked at, or where there is none, all.
        backbone: a timm or torchvision model by name.
        image_size: side of a view; None: what suits the data.
        kappa: concentration of the kernel.
        device: auto, cpu or cuda.
    """
    if backbone is None:
        encoder, source, where = ready(weights, data, "student", device, None, None, strict=False)
        module, size = encoder.backbone.module, encoder.config["image_size"]
    else:
        if data is None:
            raise ValueError("data (--data) must say which images a backbone is to be looked at with")
        source = open_source(data, image_size=image_size)
        size, where = image_size or source.image_size, torch.device("cuda" if _wants_gpu(device) else "cpu")
        module = _loaded(backbone, source, size, Path(weights)).to(where)
    augment = Augment(recipe("simclr", size), source.mean, source.std)
    first, second, _ = HeldOut(source, augment, where, seed=0).seen(_Features(module))
    return examine(first, second, kappa=kappa)


def _wants_gpu(device: str) -> bool:
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def _loaded(name: str, source: Source, size: int, path: Path) -> nn.Module:
    """The model with the weights; whatever wraps their names, and classifiers, are taken off."""
    module = build_backbone(name, source.channels, size).module
    given = _bare(load_file(path) if path.suffix == ".safetensors" else weights_in(path))
    wanted = module.state_dict()
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    odd = [key for key in given if key not in wanted and not key.startswith(_HEADS)]
    shapes = [key for key in wanted if key in given and given[key].shape != wanted[key].shape]
    if missing or odd or shapes:
        what = f"lacks {missing[0]}" if missing else f"has {odd[0]}" if odd else f"has another shape for {shapes[0]}"
        raise ValueError(f"{path} does not fit {name} for images of {source.channels} channels and {size} pixels: it {what}")
    module.load_state_dict({key: given[key] for key in wanted if key in given}, strict=False)
    return module


def _bare(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without what wraps all of them."""
    found = dict(weights)
    while prefix := next((x for x in _WRAPPERS if found and all(key.startswith(x) for key in found)), ""):
        found = {key.removeprefix(prefix): value for key, value in found.items()}
    return found
