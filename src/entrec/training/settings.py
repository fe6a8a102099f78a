"""What a run is asked to do: typed, checked, and written to its folder as it was understood."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from entrec.methods import METHODS, Entry
from entrec.training.heard import without_unheard


@dataclass(frozen=True)
class Settings:
    """Everything about a run but the method's own options.

    Args:
        method: one of the eight.
        er: the ER objective in place of the method's loss.
        preset: the protocol whose settings it began from (see `entrec.training.presets`); None: our own defaults.
        data: a name (shapes, digits, cifar10, ...), a folder of images, or an archive of one.
        epochs: passes over the data.
        batch_size: images in a step, over all devices; None: 256, and of fewer than 2,048 images the power of two that makes
            eight steps of an epoch, or 16 where that is more.
        seed: of every random draw.
        backbone: a timm or torchvision model, or `tiny`; None: what suits the data.
        image_size: side of a full-size view; None: what suits the data.
        recipe: the augmentations (simclr, byol, moco, swav, dino, none); None: the method's own.
        min_crop: the smallest area of a full-size crop, as a share of the image's; None: the recipe's.
        labels: take folders for classes, or not; None: look.
        root: where a named data set lies or is downloaded to; None: ~/.cache/entrec/NAME.
        optimizer: `lars`, `sgd`, `adam` or `adamw`; None: LARS, as published, or AdamW for the tiny encoder and its short runs.
        rate: learning rate for 256 images in a batch, to which it is in proportion; None: the optimiser's usual one.
        weight_decay: None: the optimiser's usual one.
        decay_all: biases and norms decay too.
        warmup: part of the run in which the learning rate rises.
        rate_changes: with every `step`, or with every `epoch`, within which it stays.
        precision: `32` or `bf16`; None: bf16 on a GPU that has it.
        device: `cpu`, `cuda` or `auto`.
        devices: how many processes, one device each.
        gather: batch-coupled losses see all devices' rows as one batch; otherwise one estimate per device, averaged.
        workers: processes that decode images, per device; None: all cores, 16 at the most, shared among the devices.
        compile: compile views and encoders, which takes up to a minute; None: on a GPU, for runs of some minutes and more.
        capture: launch a step on a single GPU as one CUDA graph.
        log_every: steps between two rows of metrics.csv.
        evaluate_every: epochs between two kNN scores, and two looks through the lens; None: so many that they take about 2 %
            of training, but ten in a run at the least.
        evaluate_last: epochs at the end of a run after each of which there are both.
        knn_k: neighbours that vote.
        knn_temperature: of their votes.
        knn_all: kNN scores during training look at all images, instead of 10,000 of a split; the last one always does.
        lens: look at held-out views (of training images, where there is no test split) without labels, and say in words
            whether the representation is healthy.
        on_collapse: `warn`, or `stop` where the lens has seen a collapse, or no numbers, twice in a row, after the warm-up; a
            collapse is none before 60 steps.
        keep: whose encoder the run is known by: `last`, or `best-er`, that with the highest ER bound on the lens's views.
        patience: stop after so many looks in a row without a higher one; None: never.
        scores: kNN and linear probe at the end, where there are labels and held-out images.
        checkpoint_every: steps between two checkpoints; one is written at the end of each epoch anyway.
        strict: stop at an unreadable image instead of going on without it.
        wandb: send the metrics to Weights & Biases too, if that is installed.
        options: the method's own settings that were given.
    """

    method: str
    er: bool = False
    preset: str | None = None
    data: str = "shapes"
    epochs: int = 100
    batch_size: int | None = None
    seed: int = 0
    backbone: str | None = None
    image_size: int | None = None
    recipe: str | None = None
    min_crop: float | None = None
    labels: bool | None = None
    root: str | None = None
    optimizer: Literal["lars", "sgd", "adam", "adamw"] | None = None
    rate: float | None = None
    weight_decay: float | None = None
    decay_all: bool = False
    warmup: float = 0.1
    rate_changes: Literal["step", "epoch"] = "step"
    precision: Literal["32", "bf16"] | None = None
    device: str = "auto"
    devices: int = 1
    gather: bool = True
    workers: int | None = None
    compile: bool | None = None
    capture: bool = True
    log_every: int = 10
    evaluate_every: int | None = None
    evaluate_last: int = 1
    knn_k: int = 20
    knn_temperature: float = 0.07
    knn_all: bool = False
    lens: bool = True
    on_collapse: Literal["warn", "stop"] = "warn"
    keep: Literal["last", "best-er"] = "last"
    patience: int | None = None
    scores: bool = True
    checkpoint_every: int | None = None
    strict: bool = False
    wandb: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> Entry:
        """The method's."""
        return METHODS[self.method]

    def flat(self) -> dict[str, Any]:
        """As config.yaml shows it, the method's options among the rest."""
        found = asdict(self)
        return {**{key: value for key, value in found.items() if key != "options"}, **found["options"]}


_NUMBER = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")


def settings(method: str, given: Mapping[str, Any]) -> Settings:
    """Settings from what a user gave, by whatever way; anything unknown or of the wrong kind is named.

    Raises:
        ValueError: an unknown method or key (with the nearest that exists), or a value out of range.
        TypeError: a value of the wrong kind.
    """
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}{nearest(method, METHODS)}; there are {', '.join(METHODS)}")
    common = get_type_hints(Settings)
    own = get_type_hints(METHODS[method].options)
    reserved = {"method", "options"}
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for key, value in given.items():
        if key in common and key not in reserved:
            values[key] = fitting(key, value, common[key])
        elif key in own:
            options[key] = fitting(key, value, own[key])
        else:
            raise ValueError(_unknown(key, method, set(common) - reserved, own))
    found = Settings(method, **values, options=options)
    _check_ranges(found.flat())
    if not found.lens and (found.keep == "best-er" or found.patience is not None or found.on_collapse == "stop"):
        raise ValueError("keep=best-er, patience and on_collapse=stop need what the lens sees: lens must be true")
    return found


def read_config(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file; of one that a run wrote, those that had an effect."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no configuration file {path}")
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"{path} must hold lines of the form `key: value`, got {type(found).__name__}")
    return without_unheard(found, {field.name for field in fields(Settings)})


def fitting(name: str, value: Any, wanted: Any) -> Any:
    """The value in the type that is wanted: a whole number may stand for a float, nothing else for anything else."""
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        parts = get_args(wanted)
        if value is None and NoneType in parts:
            return None
        (wanted,) = (part for part in parts if part is not NoneType)
        return fitting(name, value, wanted)
    if origin is Literal:
        words = get_args(wanted)
        value = str(value) if all(isinstance(word, str) for word in words) and not isinstance(value, bool) else value
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(map(str, words))}, got {value!r}")
        return value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is float and isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)  # YAML takes 1e-4, without a dot, for a word
    if wanted is str and isinstance(value, Path):
        return str(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
        raise TypeError(f"{name} must be {names.get(wanted, wanted)}, got {value!r}")
    return value


_AT_LEAST: dict[str, float] = {
    "epochs": 1, "batch_size": 2, "seed": 0, "image_size": 8, "weight_decay": 0, "devices": 1, "workers": 0, "log_every": 1,
    "evaluate_every": 1, "evaluate_last": 1, "checkpoint_every": 1, "patience": 1, "weight": 0,
    "views": 2, "small_crops": 0, "queue": 0, "hidden": 1, "dim": 2,
    "codes": 2, "clusters": 2, "prototypes": 2, "iterations": 1, "negatives": 1, "bottleneck": 2,
    "knn_k": 1, "layers": 1, "splits": 1,
}  # fmt: skip
_POSITIVE = {
    "rate", "predictor_rate", "temperature", "teacher_temperature", "kappa", "epsilon", "scale",
    "knn_temperature", "min_crop",
}  # fmt: skip
_FRACTIONS = {"warmup", "ema", "momentum", "centre_momentum", "frozen", "min_crop"}


def _check_ranges(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if value is None or isinstance(value, bool | str):
            continue
        if key in _AT_LEAST and not _AT_LEAST[key] <= value < float("inf"):
            raise ValueError(f"{key} must be at least {_AT_LEAST[key]}{' and finite' * (value > _AT_LEAST[key])}, got {value}")
        if key in _POSITIVE and not 0 < value < float("inf"):
            raise ValueError(f"{key} must be positive and finite, got {value}")
        if key in _FRACTIONS and not 0 <= value <= 1:
            raise ValueError(f"{key} must lie between 0 and 1, got {value}")


def _unknown(key: str, method: str, common: set[str], own: Mapping[str, Any]) -> str:
    elsewhere = [name for name, entry in METHODS.items() if key in {f.name for f in fields(entry.options)}]
    if elsewhere:
        why = f": {METHODS[method].why_views}" if key == "views" else ""
        return f"{method} has no option {key!r}, which {', '.join(elsewhere)} {'have' if len(elsewhere) > 1 else 'has'}{why}"
    return f"there is no option {key!r}{nearest(key, {*common, *own})}"


def nearest(word: str, among: Any) -> str:
    """A hint at the word among these that is most like a given one; nothing where none is."""
    close = difflib.get_close_matches(word, list(among), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
