"""Published protocols by name: the settings to begin from, in place of our own defaults, so that numbers can be compared."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from entrec.training.heard import refuse_unheard
from entrec.training.settings import nearest, settings


class Preset(NamedTuple):
    """A protocol.

    Args:
        source: where it was published, and what of it is not as there.
        common: settings of all its methods.
        methods: each method's own settings and options, which go before the common ones.
    """

    source: str
    common: Mapping[str, Any]
    methods: Mapping[str, Mapping[str, Any]]


# SimCLRTransform(32, cj_strength=0.5, gaussian_blur=0): area 0.08..1, linear interpolation, jitter 0.4, 0.4, 0.4, 0.1, and 0.2
# grey, which at 32 pixels is MoCo's recipe but for the smallest area.
_SIMCLR_VIEWS = {"recipe": "moco", "min_crop": 0.08}

LIGHTLY = Preset(
    source="""lightly-ai/lightly, docs/source/getting_started/benchmarks/cifar10_benchmark.py: table of 27.03.2023, batch 512.

    Theirs is the best of 200 test scores, one after each epoch. Here there is one after every tenth epoch and after each of the
    last five, to save time: `knn_top1` in summary.json is the last, `knn_best` the best, and `evaluate_every=1` gives all 200.
    Not as there: bfloat16 on a GPU instead of float32; mean and deviation of the data's own channels instead of
    ImageNet's; DINO's head starts from DINO's own random weights, and its teacher as the student instead of at random; MoCo's
    second view does not meet the keys of the first, which are the same images, as negatives in its queue.
    """,
    common={
        "data": "cifar10", "backbone": "resnet18", "image_size": 32, "epochs": 200, "batch_size": 512,
        "optimizer": "sgd", "rate": 0.12, "weight_decay": 5e-4, "decay_all": True,  # 0.06 for 128 images
        "warmup": 0.0, "rate_changes": "epoch",  # CosineAnnealingLR, a step an epoch
        "knn_k": 200, "knn_temperature": 0.1, "knn_all": True, "evaluate_every": 10, "evaluate_last": 5,
    },
    methods={
        "simclr": {
            **_SIMCLR_VIEWS,
            "temperature": 0.5, "hidden": 512, "dim": 128, "norm_last": True, "shared_statistics": False,
        },
        "byol": {
            **_SIMCLR_VIEWS,  # BYOL's own views came into the script after the table
            "hidden": 1024, "dim": 256, "ema": 0.99, "schedule": "constant", "scale": 0.5,
        },
        "moco": {
            **_SIMCLR_VIEWS,
            "temperature": 0.1, "hidden": 512, "dim": 128, "norm": False, "ema": 0.99, "symmetric": True, "splits": 8,
            "queue": 8192,  # 4096 in the script, at batch 128; 8192 at 512, says the table's footnote
        },
        "swav": {
            "recipe": "swav", "min_crop": 0.14,
            "optimizer": "adam", "rate": 2e-3, "weight_decay": 1e-6,  # 1e-3 for 128 images
            "temperature": 0.1, "epsilon": 0.05, "iterations": 3, "hidden": 512, "dim": 128, "prototypes": 512, "queue": 0,
            "frozen": 0.0, "small_crops": 0, "shared_statistics": False,
        },
        "dino": {
            "recipe": "dino", "min_crop": 0.4,
            "temperature": 0.1, "teacher_temperature": 0.04, "centre_momentum": 0.9, "ema": 0.99, "schedule": "constant",
            "hidden": 2048, "bottleneck": 256, "codes": 2048, "layers": 2, "norm": True, "small_crops": 0,
            "shared_statistics": False,
        },
    },
)  # fmt: skip

PRESETS: dict[str, Preset] = {"lightly": LIGHTLY}


def with_preset(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, and below it what its preset says; a rate and a decay go with the optimiser that they were chosen for.

    What is given must be heard: a preset has values for both objectives, of which one may read them and the other not.

    Raises:
        ValueError: there is no such preset (with the nearest that exists), it has nothing for the method, or an option that was
            given has no effect.

    Example:
        >>> found = with_preset("simclr", {"preset": "lightly", "epochs": 10})
        >>> found["epochs"], found["batch_size"], found["temperature"]
        (10, 512, 0.5)
    """
    below = _below(method, given)
    wanted = settings(method, {key: value for key, value in given.items() if key != "data"})  # which may be a data set itself
    refuse_unheard(method, wanted.er, wanted.options, below)
    return {**below, **given}


def _below(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the preset says, if there is one."""
    name = given.get("preset")
    if name is None:
        return {}
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}{nearest(str(name), PRESETS)}; there are: {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if method not in preset.methods:
        raise ValueError(f"preset {name!r} has nothing for {method}; it is for {', '.join(sorted(preset.methods))}")
    found = {**preset.common, **preset.methods[method]}
    if given.get("optimizer", found["optimizer"]) != found["optimizer"]:
        found = {key: value for key, value in found.items() if key not in ("rate", "weight_decay")}
    return found
