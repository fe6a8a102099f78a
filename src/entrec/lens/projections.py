"""What a callback looks at: the projections that a module gives for a batch."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from entrec import checks
from entrec.lens.batches import rows_of

Projections = Callable[[Any, Any], Tensor | tuple[Tensor, ...]]


class Views(NamedTuple):
    """What is looked at: one or two tensors (k, d), and whether they are logits of codes."""

    z: tuple[Tensor, ...]
    codes: bool


def looked_at(module: Any, batch: Any, projections: Projections | None, codes: bool) -> Views:
    """What a module makes of a batch; without a function that says it, as `entrec.training.Pretraining` does."""
    if projections is None:
        one, other = module.see(batch)
        return Views((one.values, other.values), one.codes)
    found = projections(module, batch)
    z = (found,) if isinstance(found, Tensor) else found
    check_projections(z)
    return Views(z, codes)


def together(parts: Sequence[Views], rows: int) -> Views:
    """The first rows of what was seen of several batches."""
    return Views(tuple(torch.cat(of)[:rows] for of in zip(*(x.z for x in parts), strict=True)), parts[0].codes)


def check_of_batch(views: Views, batch: Any) -> None:
    """Whether what was seen is of this batch, a row for each datum."""
    if len(views.z[0]) != rows_of(batch):
        raise ValueError(
            f"projections must be of the batch that the function is given, a row for each datum, got "
            f"{len(views.z[0])} for {rows_of(batch)}: what a training step left behind is not of held-out data"
        )


def check_projections(z: Any) -> None:
    """Whether a function gave the projections of one view or two."""
    if not isinstance(z, tuple | list) or len(z) not in (1, 2) or not all(isinstance(x, Tensor) for x in z):
        got = f"{len(z)} of {type(z[0]).__name__}" if isinstance(z, tuple | list) and z else type(z).__name__
        raise TypeError(f"projections must give a tensor for each of two views, or one tensor, got {got}")
    shapes = [tuple(x.shape) for x in z]
    if any(len(shape) != 2 or shape[1] < 2 for shape in shapes) or len(set(shapes)) > 1:
        raise ValueError(
            f"projections must have the shape (rows, dimensions), at least 2 of these, alike in both views, got "
            f"{' and '.join(map(str, shapes))}"
        )
    if not all(x.is_floating_point() for x in z):
        raise TypeError(f"projections must be floating-point, got {' and '.join(str(x.dtype) for x in z)}")


def measurable(z: Tensor) -> Tensor:
    """In float32 or better, where float64 exists too."""
    return checks.at_least_float32(z.detach() if z.device.type in ("cpu", "cuda") else z.detach().cpu())
