"""From settings to the parts of a run: data, views, encoder, method, optimiser."""

from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from entrec.branches.backbones import Backbone, build_backbone
from entrec.data import Source
from entrec.training.draws import seed_of
from entrec.training.lars import LARS
from entrec.training.parameters import parameter_groups
from entrec.training.schedule import scaled_rate
from entrec.training.settings import Settings
from entrec.views.augment import Augment
from entrec.views.recipe import recipe

# LARS as in the ER paper, with SimCLR's decay; the others with what small images are usually begun with.
_RATES = {"lars": 0.3, "sgd": 0.1, "adamw": 6e-3}
_DECAYS = {"lars": 1e-6, "sgd": 5e-4, "adamw": 1e-3}
SMALL = 96  # pixels: images under this size get a ResNet's small stem, and defaults for small data sets


class Parts(NamedTuple):
    """What a run is made of.

    Args:
        source: the images.
        backbone: the encoder, and how it was built.
        method: the module whose loss is minimised.
        augment: from images to views.
        settings: complete: the data's and the method's defaults filled in.
    """

    source: Source
    backbone: Backbone
    method: nn.Module
    augment: Augment
    settings: Settings


def assemble(settings: Settings, source: Source) -> Parts:
    """All parts, their parameters drawn from the seed."""
    entry = settings.entry
    size = settings.image_size or source.image_size
    torch.manual_seed(seed_of(settings.seed, 0))
    backbone = build_backbone(settings.backbone or source.backbone, source.channels, size)
    given = dict(settings.options)
    if source.views > 1 and hasattr(entry.options, "views"):
        given = {"views": source.views, **given}
    if source.views > 1 and given.get("views", source.views) != source.views:
        raise ValueError(f"views must be {source.views}, as each sample of {source.name} is, got {given['views']}")
    options = replace(entry.defaults(backbone.width, size < SMALL), **given)
    per_image = {"images": len(source.train)} if entry.per_image else {}  # type: ignore[arg-type]
    method = entry.build(backbone.module, backbone.width, options, settings.er, settings.gather, **per_image)
    name: Any = settings.recipe or entry.recipe
    drawn = recipe(name, size, _views(options, entry.views), getattr(options, "small_crops", 0))
    network = settings.backbone or source.backbone
    optimizer = settings.optimizer or ("adamw" if network == "tiny" else "lars")
    complete = replace(
        settings,
        backbone=network,
        image_size=size,
        recipe=name,
        optimizer=optimizer,
        rate=_RATES[optimizer] if settings.rate is None else settings.rate,
        weight_decay=_DECAYS[optimizer] if settings.weight_decay is None else settings.weight_decay,
        options=asdict(options),
    )
    return Parts(source, backbone, method, Augment(drawn, source.mean, source.std), complete)


def optimizer_of(settings: Settings, *modules: nn.Module) -> Optimizer:
    """The optimiser at its peak rate, biases and norms without decay and without LARS's adaptation."""
    assert settings.rate is not None  # filled in by `assemble`
    assert settings.weight_decay is not None
    rate = scaled_rate(settings.rate, settings.batch_size)
    groups: list[dict[str, Any]] = parameter_groups(modules, settings.weight_decay)
    if settings.optimizer == "lars":
        return LARS(groups, rate, momentum=0.9)
    if settings.optimizer == "sgd":
        return SGD(groups, rate, momentum=0.9)
    return AdamW(groups, rate)


def _views(options: Any, otherwise: int) -> int:
    found: int = getattr(options, "views", otherwise)
    return found
