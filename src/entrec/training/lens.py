"""The lens on an encoder: of a run, or any of timm's or torchvision's with weights from elsewhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entrec.branches.backbones import build_backbone
from entrec.data import Source, open_source
from entrec.lens.embeddings import load_safetensors, weights_in
from entrec.lens.examine import Examined, examine
from entrec.methods import Seen
from entrec.training.held_out import HeldOut
from entrec.training.runs import ready
from entrec.views.augment import Augment
from entrec.views.recipe import recipe

_SIZES = (96, 224)  # at which encoders have their usual stems, and at which vision transformers were trained


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
    er: bool = False,
) -> Examined:
    """Look at the features of two views (SimCLR's) of each image, by a trained encoder.

    Args:
        weights: a run's folder or checkpoint of entrec's; or, with `backbone`, a state dict (.pt, .pth, .safetensors).
        data: as for `entrec.train`; a run's own if not given. The test split is looked at, or where there is none, all.
        backbone: a timm or torchvision model by name.
        image_size: side of a view; None: what suits the data.
        kappa: concentration of the kernel.
        device: auto, cpu or cuda.
        er: it was trained with the ER objective, which is no remedy then; of a run of entrec's that is known.
    """
    if backbone is None:
        encoder, source, where = ready(weights, data, "student", device, None, None, strict=False)
        module, size = encoder.backbone.module, encoder.config["image_size"]
        er = er or bool(encoder.config["er"])
    else:
        if data is None:
            raise ValueError("data (--data) must say which images a backbone is to be looked at with")
        source = open_source(data, image_size=image_size)
        where = torch.device("cuda" if _wants_gpu(device) else "cpu")
        sizes = [source.image_size, *_SIZES] if image_size is None else [image_size]
        module, size = _loaded(backbone, source, sizes, Path(weights))
        module.to(where)
    augment = Augment(recipe("simclr", size), source.mean, source.std)
    first, second, _ = HeldOut(source, augment, where, seed=0).seen(_Features(module))
    found = examine(first, second, kappa=kappa, er=er)
    return found._replace(notes=(f"Looked at: the encoder's features of two views of {size} pixels.", *found.notes))


def _wants_gpu(device: str) -> bool:
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def _loaded(name: str, source: Source, sizes: Sequence[int], path: Path) -> tuple[nn.Module, int]:
    """The model with the weights, for images of the first size that it fits them at."""
    given = load_safetensors(path) if path.suffix == ".safetensors" else weights_in(path)
    wrong = ""
    for size in dict.fromkeys(sizes):
        module = build_backbone(name, source.channels, size).module
        wanted = module.state_dict()
        found = matching(given, wanted)
        lacking = [key for key in wanted if key not in found and not key.endswith("num_batches_tracked")]
        odd = [key for key in lacking if any(x.shape != wanted[key].shape for other, x in given.items() if other.endswith(key))]
        if not lacking:
            module.load_state_dict(found, strict=False)
            return module, size
        what = f"it has another shape for {odd[0]}" if odd else f"it lacks {lacking[0]}"
        wrong = wrong or f"{path} does not fit {name} for images of {source.channels} channels and {size} pixels: {what}"
    tried = " and ".join(map(str, dict.fromkeys(sizes)))
    raise ValueError(f"{wrong} (tried {tried} pixels; --image-size takes another)")


def matching(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The given tensors by the wanted names: whatever wraps them, heads and other branches are left out.

    Names are those of a wrapper (`module.`, `backbone.`, `encoder_q.`, ...) and the model's own behind it; where none has them,
    as in an encoder that was cut into an `nn.Sequential`, tensors under one wrapper are taken in their order, if shapes agree.
    """
    # In the order of the file: of two branches that fit alike, as MoCo's query and key encoders, the first is taken.
    prefixes = dict.fromkeys(["", *(key[: place + 1] for key in given for place, letter in enumerate(key) if letter == ".")])
    by_name = [{key.removeprefix(p): x for key, x in given.items() if key.startswith(p)} for p in sorted(prefixes, key=len)]
    fitting = [{key: x for key, x in found.items() if key in wanted and x.shape == wanted[key].shape} for found in by_name]
    best = max(fitting, key=len)
    counted = {key: x for key, x in wanted.items() if not key.endswith("num_batches_tracked")}
    if counted.keys() <= best.keys():
        return best
    for found in by_name:
        own = [x for key, x in found.items() if not key.endswith("num_batches_tracked")][: len(counted)]
        if [x.shape for x in own] == [x.shape for x in counted.values()]:
            return dict(zip(counted, own, strict=True))
    return best
