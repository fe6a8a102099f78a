"""Batches of any structure, tensors in tuples, lists and mappings: put together, counted and cut."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def one_batch(held_out: Any, rows: int) -> Any:
    """The first rows of a batch, or of what a loader gives, as one batch."""
    batches: list[Any] = []
    for batch in [held_out] if isinstance(held_out, Tensor | Mapping | tuple | list) else held_out:
        batches.append(batch)
        if sum(map(rows_of, batches)) >= rows:
            break
    if not batches:
        raise ValueError("held_out must have data, got a loader without any")
    return part_of(_over(torch.cat, batches), 0, rows)


def rows_of(batch: Any) -> int:
    """How many data a batch is of."""
    found: list[int] = []
    _over(lambda of: found.append(len(of[0])), [batch])
    if not found:
        raise TypeError(f"held_out must hold tensors, got {type(batch).__name__} without any")
    return found[0]


def part_of(batch: Any, start: int, stop: int) -> Any:
    """Some of its data, in a batch like it."""
    return _over(lambda of: of[0][start:stop], [batch])


def _over(function: Callable[[list[Tensor]], Any], batches: list[Any]) -> Any:
    """A batch like these, with a function of their tensors in each tensor's place; what is no tensor is the first's."""
    first = batches[0]
    if isinstance(first, Tensor):
        return function(batches)
    if isinstance(first, Mapping):
        return {key: _over(function, [batch[key] for batch in batches]) for key in first}
    if isinstance(first, tuple | list) and any(isinstance(x, Tensor | Mapping | tuple | list) for x in first):
        parts = [_over(function, list(of)) for of in zip(*batches, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return first
