"""Views that differ in how probable their changes are, as one view of other random numbers: compiled once, and not for each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from entrec.views.ops import numbers_of_crop
from entrec.views.recipe import Look, View

# A look's changes in their order, each with the numbers that it takes; of them, the one that decides whether it happens.
_CHANGES = {"flip": (1, 0), "jitter": (9, 8), "grey": (1, 0), "blur": (2, 1), "solarise": (1, 0)}
_COLOURS = 3  # channels, without which nothing turns grey


@dataclass(frozen=True)
class Shared:
    """A view that others are cases of: a change of probability p happens where u < p, and so where u / p < 1.

    Args:
        view: what happens in any of them, always, if its numbers say so.
        rows: of which of a view's own numbers its numbers are; the one past the last is a row of ones.
        factors: by which they are multiplied.
    """

    view: View
    rows: Tensor
    factors: Tensor

    def numbers(self, own: Tensor) -> Tensor:
        """Of the shared view, (n, k), from those that were drawn for the view itself."""
        return torch.cat([own, own.new_ones(1, own.shape[1])])[self.rows] * self.factors


def shared(views: Sequence[View], channels: int, cropped: bool, device: torch.device) -> tuple[Shared | None, ...]:
    """For each view the one that it shares with others; None where it is alone, or others are just like it.

    Args:
        views: of a recipe.
        channels: of the images.
        cropped: whether the crops were cut before, and take no numbers.
        device: of the numbers.
    """
    kinds = [_kind(view) for view in views]
    wholes: dict[View, View] = {}  # one object each, that compiled code knows again
    found = []
    for view, kind in zip(views, kinds, strict=True):
        looks = [other.look for other, its in zip(views, kinds, strict=True) if its == kind]
        whole = _whole(view, looks)
        alone = all(look == view.look for look in looks)
        found.append(None if alone else _case(view, wholes.setdefault(whole, whole), channels, cropped, device))
    return tuple(found)


def _kind(view: View) -> View:
    """A view but for how probable its changes are; whether it may be blurred is of its kind, as a blur takes time."""
    blurs = float(view.look.blur > 0)
    without: dict[str, Any] = {**dict.fromkeys(_CHANGES, 0.0), "blur": blurs}
    return replace(view, look=replace(view.look, **without))


def _whole(view: View, looks: Sequence[Look]) -> View:
    """Of some looks of its kind, all changes together."""
    happen: dict[str, Any] = {name: 1.0 for name in _CHANGES if any(getattr(look, name) > 0 for look in looks)}
    return replace(view, look=replace(view.look, **happen))


def _case(view: View, whole: View, channels: int, cropped: bool, device: torch.device) -> Shared:
    at = 0 if cropped else numbers_of_crop(view.crop)
    rows, factors = list(range(at)), [1.0] * at
    for name, (n, decides) in _CHANGES.items():
        if getattr(whole.look, name) == 0 or (name == "grey" and channels != _COLOURS):
            continue
        p = getattr(view.look, name)
        rows += range(at, at + n) if p > 0 else [-1] * n
        factors += [1 / p if p > 0 and number == decides else 1.0 for number in range(n)]
        at += n if p > 0 else 0
    return Shared(whole, torch.tensor(rows, device=device), torch.tensor(factors, device=device)[:, None])
