"""The paper's methods: each file says which branches, which surrogate, which loss and which defaults.

A method is an `nn.Module` whose `forward(views)` returns a `Step`; `measure(step)` gives the two terms of the bound in nats.
State changes are calls: `prepare(progress)` before the step, where something follows from the place in the run;
`before_step()` between the gradients and the optimiser; `update(step)` after the optimiser's step, where a method has a
teacher, a queue or a bank; `begin_epoch(project, generator)` where it clusters. What `prepare` returns says how the step goes
(nothing, where that never changes); all else that it sets are tensors, so that a step can be captured once and run again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from entrec.estimators import ERObjective
from entrec.methods import byol, cmc, deepcluster, dino, ir, moco, simclr, swav
from entrec.methods.byol import BYOL
from entrec.methods.cmc import CMC
from entrec.methods.deepcluster import DeepCluster
from entrec.methods.dino import DINO
from entrec.methods.ir import IR
from entrec.methods.moco import MoCo
from entrec.methods.simclr import SimCLR
from entrec.methods.step import Progress, Seen, Step, Views
from entrec.methods.swav import SwAV

__all__ = [
    "BYOL",
    "CMC",
    "DINO",
    "IR",
    "METHODS",
    "DeepCluster",
    "Entry",
    "Method",
    "MoCo",
    "Progress",
    "Seen",
    "SimCLR",
    "Step",
    "SwAV",
    "Views",
]


class Method(Protocol):
    """What the trainer asks of a method, beside being an `nn.Module`."""

    encoder: nn.Module

    def __call__(self, views: Views) -> Step:
        """One step's loss and what it was made of."""

    def measure(self, step: Step) -> ERObjective:
        """The two terms of the bound in nats."""

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """What the student makes of images that are view number `view`."""


class Entry(NamedTuple):
    """A method by its name.

    Args:
        options: its settings, a frozen dataclass.
        defaults: the settings for features of a width, at small image sizes or not.
        build: the module.
        recipe: the augmentations that it was published with.
        per_image: it keeps something for each image of the data set, so `build` wants to know how many there are.
        views: how many full-size views a step takes where the options do not say.
        why_views: why they do not say it, where they do not.
        of_own_loss: options that only its own loss reads, and the ER objective does not.
    """

    options: type[Any]
    defaults: Callable[[int, bool], Any]
    build: Callable[..., nn.Module]
    recipe: str
    per_image: bool = False
    views: int = 2
    why_views: str = ""
    of_own_loss: tuple[str, ...] = ()


METHODS: dict[str, Entry] = {
    "simclr": Entry(simclr.Options, simclr.defaults, SimCLR, simclr.RECIPE, of_own_loss=("temperature",)),
    "cmc": Entry(cmc.Options, cmc.defaults, CMC, cmc.RECIPE, of_own_loss=("temperature",)),
    "ir": Entry(
        ir.Options,
        ir.defaults,
        IR,
        ir.RECIPE,
        per_image=True,
        views=1,
        why_views="it takes 1 view of an image, to find the image's entry in the bank",
        of_own_loss=("temperature", "negatives"),
    ),
    "moco": Entry(
        moco.Options,
        moco.defaults,
        MoCo,
        moco.RECIPE,
        why_views="it takes 2 views of an image, one that asks and one that is the key",
        of_own_loss=("temperature", "queue"),
    ),
    "deepcluster": Entry(deepcluster.Options, deepcluster.defaults, DeepCluster, deepcluster.RECIPE, per_image=True),
    "swav": Entry(swav.Options, swav.defaults, SwAV, swav.RECIPE),
    "byol": Entry(byol.Options, byol.defaults, BYOL, byol.RECIPE, of_own_loss=("scale",)),
    "dino": Entry(dino.Options, dino.defaults, DINO, dino.RECIPE),
}
