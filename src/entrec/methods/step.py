"""What goes into a training step and what comes out: the two types that every method shares."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Views(NamedTuple):
    """What a step is given.

    Args:
        images: one tensor (k, C, s, s) per view, the full-size ones first.
        places: where in the data set each of the k images stands, shape (k,).
        full: how many views are full-size; only those does a teacher see.
    """

    images: tuple[Tensor, ...]
    places: Tensor
    full: int


class Progress(NamedTuple):
    """Where in the run a step stands: `step` of `total`, the first being 0."""

    step: int
    total: int

    @property
    def part(self) -> float:
        """Of the run, that lies behind."""
        return self.step / self.total


class Step(NamedTuple):
    """What a step returns; the two terms of the bound can be measured from it, whatever the loss was.

    Args:
        loss: a scalar, to be minimised.
        features: the encoder's output for the first view, (k, width), without gradient: what an online probe reads.
        student: the student's projections or, for methods with discrete codes, logits: one (k, d) per view.
        targets: what is reconstructed, without gradient; empty where the student's own projections are.
        sources: what it is reconstructed from, if that is not `student`: a predictor's outputs.
        kept: what the method's `update` needs.
    """

    loss: Tensor
    features: Tensor
    student: tuple[Tensor, ...]
    targets: tuple[Tensor, ...] = ()
    sources: tuple[Tensor, ...] = ()
    kept: tuple[Tensor, ...] = ()

    def detached(self) -> "Step":
        """The same without a graph, to be measured."""
        loss, features, *views = self
        return Step(loss.detach(), features.detach(), *(tuple(x.detach() for x in part) for part in views))


class Seen(NamedTuple):
    """What the student makes of images: what the lens looks at.

    Args:
        values: projections (k, d), or logits of codes (k, m) at the student's temperature.
        codes: whether they are logits.
    """

    values: Tensor
    codes: bool = False


def joined(steps: Sequence[Step]) -> Step:
    """Accumulated batches as the one step that the optimiser makes of them, for `update`: the rows of all."""
    if len(steps) == 1:
        return steps[0]
    targets, kept = (
        tuple(torch.cat(parts) for parts in zip(*(getattr(step, name) for step in steps), strict=True))
        for name in ("targets", "kept")
    )
    return steps[-1]._replace(targets=targets, kept=kept)


def each(module: Callable[[Tensor], Tensor], images: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The module's output of each view, one call per view: BatchNorm sees one view at a time, as in BYOL and MoCo."""
    return tuple(module(x) for x in images)


def together(module: Callable[[Tensor], Tensor], images: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same with one call for all views of one size, whose statistics BatchNorm then shares, as in SimCLR, SwAV and DINO."""
    found: list[Tensor] = []
    start = 0
    while start < len(images):
        stop = start + 1
        while stop < len(images) and images[stop].shape == images[start].shape:
            stop += 1
        found += module(torch.cat(images[start:stop])).chunk(stop - start)
        start = stop
    return tuple(found)
