"""From settings to the parts of a run: data, views, encoder, method, optimiser."""

import os
from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from entrec.branches.backbones import SMALL, Backbone, build_backbone, check_takes, fitting_size
from entrec.data import Source
from entrec.training.devices import meant
from entrec.training.draws import seed_of
from entrec.training.held_out import rows_to_look_at
from entrec.training.images import KNN_IMAGES
from entrec.training.lars import LARS
from entrec.training.parameters import faster, parameter_groups
from entrec.training.schedule import epochs_between, scaled_rate
from entrec.training.settings import Settings
from entrec.views.augment import Augment
from entrec.views.recipe import Recipe, recipe

# Pixels that pass forward on a GPU while it waits for an evaluation's kernels, which are launched one by one while those of a
# step are launched at once: 54 ms on an H200, or 12,000 images of 32 pixels through a ResNet-18.
_LAUNCHES = 12_000 * 32**2

# LARS as in the ER paper, with SimCLR's decay; the others with what small images are usually begun with.
_RATES = {"lars": 0.3, "sgd": 0.1, "adam": 1e-3, "adamw": 1e-3}
_TINY_RATE = 6e-3  # AdamW's for the tiny encoder, whose runs are short
_TINY_PREDICTOR_RATE = 10.0  # times that, for BYOL; chosen on an earlier form of shapes, and not compared with 1 on this one
_DECAYS = {"lars": 1e-6, "sgd": 5e-4, "adam": 1e-6, "adamw": 1e-3}
_BATCH, _SMALLEST_BATCH = 256, 16  # of fewer rows, an entropy and BatchNorm's statistics have little to go by
_STEPS = 8  # of an epoch at the least: where a batch is nearly all data, as many epochs as usual are hardly any steps


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
    """All parts, their parameters drawn from the seed.

    Raises:
        ValueError: the settings, the data and the encoder do not fit each other.
    """
    entry = settings.entry
    size, network = settings.image_size or source.image_size, settings.backbone or source.backbone
    torch.manual_seed(seed_of(settings.seed, 0))
    backbone = build_backbone(network, source.channels, size)
    images = len(source.train)  # type: ignore[arg-type]
    options = replace(_defaults(settings, network, backbone.width, size, images), **_given(settings, source))
    further: dict[str, Any] = {"images": images} if entry.per_image else {}
    further |= _encoders(network, size, source, options)
    method = entry.build(backbone.module, backbone.width, options, settings.er, settings.gather, **further)
    name, views = _recipe(settings, source, options, backbone, size)
    optimizer = settings.optimizer or ("adamw" if network == "tiny" else "lars")
    complete = replace(
        settings,
        backbone=network,
        image_size=size,
        batch_size=settings.batch_size or _batch(images),
        recipe=name,
        optimizer=optimizer,
        rate=_rate(optimizer, network) if settings.rate is None else settings.rate,
        weight_decay=_DECAYS[optimizer] if settings.weight_decay is None else settings.weight_decay,
        workers=_workers(settings.devices) if settings.workers is None else settings.workers,
        evaluate_every=settings.evaluate_every or _evaluate_every(settings, source, size),
        options=asdict(options),
    )
    return Parts(source, backbone, method, _augment(views, source), complete)


def _defaults(settings: Settings, network: str, width: int, size: int, images: int) -> Any:
    """The method's; with the tiny encoder's short runs and AdamW, a predictor that keeps up with the rest.

    Clusters are so few that one has ten images on average.
    """
    options = settings.entry.defaults(width, size < SMALL)
    if hasattr(options, "clusters"):
        options = replace(options, clusters=min(options.clusters, max(2, images // 10)))
    quick = network == "tiny" and settings.optimizer in (None, "adamw") and hasattr(options, "predictor_rate")
    return replace(options, predictor_rate=_TINY_PREDICTOR_RATE) if quick else options


def _rate(optimizer: str, network: str) -> float:
    return _TINY_RATE if (optimizer, network) == ("adamw", "tiny") else _RATES[optimizer]


def _batch(images: int) -> int:
    """The usual batch; of few images the power of two that makes enough steps of an epoch, 16 where there are as many.

    The learning rate is in proportion to it (`scaled_rate`), so that more steps are smaller ones.

    >>> [_batch(images) for images in (100_000, 2048, 2047, 300, 48, 10)]
    [256, 256, 128, 32, 16, 8]
    """
    if images < 2:
        raise ValueError(f"a data set must have at least 2 images to train on, got {images}")
    return min(_BATCH, _power_of_two(max(images // _STEPS, min(images, _SMALLEST_BATCH))))


def _power_of_two(at_most: int) -> int:
    return 1 << (at_most.bit_length() - 1)


def _evaluate_every(settings: Settings, source: Source, size: int) -> int:
    train, test = len(source.train), 0 if source.test is None else len(source.test)  # type: ignore[arg-type]
    most = train + test if settings.knn_all else KNN_IMAGES
    scored = min(train, most) + min(test, most) if source.classes and test else 0
    launched = _LAUNCHES // size**2 if meant(settings.device) == "cuda" else 0
    return epochs_between(settings.epochs, train, scored + 2 * rows_to_look_at(train) + launched)


def _workers(devices: int) -> int:
    """As many as there are cores, of which more than 16 are seldom needed for a device."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(16, cores // int(os.environ.get("LOCAL_WORLD_SIZE", devices))))


def _given(settings: Settings, source: Source) -> dict[str, Any]:
    """The method's options that were given, and as many views as a sample is where it is several.

    An EMA that is asked for stays as it is over the run, unless its schedule is asked for too.
    """
    given, takes = dict(settings.options), {field.name for field in fields(settings.entry.options)}
    if "ema" in given and "schedule" in takes:
        given = {"schedule": "constant", **given}
    if source.views == 1:
        return given
    if given.get("views", source.views) != source.views:
        raise ValueError(f"views must be {source.views}, as each sample of {source.name} is, got {given['views']}")
    if given.get("small_crops", 0):
        raise ValueError(f"small_crops must be 0, as each sample of {source.name} is its {source.views} views already")
    known = {"views": source.views, "small_crops": 0}
    return {**given, **{key: value for key, value in known.items() if key in takes}}


def _encoders(network: str, size: int, source: Source, options: Any) -> dict[str, Any]:
    """An encoder for each further view, of its own number of channels, where the method has one for each."""
    if getattr(options, "shared", True):
        odd = [other.channels for other in source.others if other.channels != source.channels]
        if odd:
            raise ValueError(
                f"views of {source.channels} and of {odd[0]} channels need an encoder each: method cmc with shared=False "
                "(--set shared=false)"
            )
        return {}
    channels = [other.channels for other in source.others] or [source.channels] * (options.views - 1)
    return {"others": [build_backbone(network, c, size).module for c in channels]}


def _recipe(settings: Settings, source: Source, options: Any, backbone: Backbone, size: int) -> tuple[str, Recipe]:
    """The name and the views: samples that are several views are taken as they are, unless a recipe is asked for."""
    name: Any = settings.recipe or ("none" if source.views > 1 else settings.entry.recipe)
    small = getattr(options, "small_crops", 0)
    views = source.views if source.views > 1 else getattr(options, "views", settings.entry.views)
    small_size = fitting_size(backbone, round(96 / 224 * size)) if small else None
    found = recipe(name, size, views, small, small_size, settings.min_crop)
    for view in found.views[views:][:1]:
        check_takes(backbone, source.channels, view.crop.size)
    return name, found


def _augment(views: Recipe, source: Source) -> Augment:
    if not source.others:
        return Augment(views, source.mean, source.std)
    means, stds = [source.mean, *(x.mean for x in source.others)], [source.std, *(x.std for x in source.others)]
    return Augment(views, means, stds)


def adamw(params: Any, rate: float, on_gpu: bool, kind: type[Adam] = AdamW, **more: Any) -> Adam:
    """AdamW, or Adam; on a GPU in a form that a CUDA graph can hold, which may run without one too."""
    found = kind(params, rate, capturable=on_gpu, fused=True, **more)
    # Else it would warn at its first step, which is taken before any capture, that it could be had faster.
    found._warned_capturable_if_run_uncaptured = True
    return found


def _sgd(params: Any, rate: float) -> SGD:
    """SGD with momentum, in its fused form, which wants the momenta of all parameters there or of none."""
    found = SGD(params, rate, momentum=0.9, fused=True)
    found.register_step_pre_hook(_begin_momenta)
    return found


def _begin_momenta(optimizer: Optimizer, *_: Any) -> None:
    """Momenta of zero, from which a first step ends as without any: SwAV's prototypes learn later than the others."""
    for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
        if optimizer.state[parameter].get("momentum_buffer") is None:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)


def synchronised(module: nn.Module) -> None:
    """BatchNorm with the statistics of all ranks, in place; timm's layers that hold an activation too keep it."""
    from timm.layers.norm_act import convert_sync_batchnorm

    for name, part in module.named_children():
        setattr(module, name, convert_sync_batchnorm(part))  # type: ignore[no-untyped-call]


def optimizer_of(settings: Settings, method: nn.Module, on_gpu: bool = False) -> Optimizer:
    """The optimiser at its peak rate, biases and norms without decay, unless all decay, and without LARS's adaptation.

    On a GPU in a form that a CUDA graph can hold, whose rate may be a tensor.
    """
    assert settings.rate is not None  # filled in by `assemble`
    assert settings.batch_size is not None
    rate = scaled_rate(settings.rate, settings.batch_size)
    groups = [{**group, "lr": rate} for group in _groups(settings, method)]
    factor = settings.options.get("predictor_rate", 1.0)
    if factor != 1:
        groups = faster(groups, cast(Any, method).predictor, factor)
    if settings.optimizer == "lars":
        return LARS(groups, rate, momentum=0.9)
    if settings.optimizer == "sgd":
        return _sgd(groups, rate)
    return adamw(groups, rate, on_gpu, Adam if settings.optimizer == "adam" else AdamW)


def _groups(settings: Settings, method: nn.Module) -> list[dict[str, Any]]:
    assert settings.weight_decay is not None  # filled in by `assemble`
    groups = parameter_groups(method, settings.weight_decay)
    return [{**group, "weight_decay": settings.weight_decay} for group in groups] if settings.decay_all else groups
