"""A row's numbers on their way from the device: read when the next row is due, so that no step waits for them."""

import time
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Moment:
    """A moment on the device's own clock: on a GPU, when it comes to what was launched last."""

    def __init__(self, device: torch.device) -> None:
        self._event: Any = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        self._time = time.perf_counter()
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Until it is over."""
        if self._event is not None:
            self._event.synchronize()

    def seconds_since(self, earlier: "Moment") -> float:
        """Between two moments that are both over."""
        if self._event is None:
            return self._time - earlier._time
        return float(earlier._event.elapsed_time(self._event)) / 1e3


class Row(NamedTuple):
    """A row of metrics.csv that has been asked for.

    Args:
        step: how many were made when it was.
        epoch: in which.
        known: its numbers that the host has.
        names: of the others.
        values: the others, first of all the first step whose loss was no number: on the host once `moment` is over.
        moment: when they are there.
    """

    step: int
    epoch: int
    known: dict[str, float]
    names: tuple[str, ...]
    values: Tensor
    moment: Moment

    def numbers(self) -> tuple[int, dict[str, float]]:
        """The first bad step, or -1, and the row; waits for the device if it must."""
        self.moment.wait()
        first_bad, *values = self.values.tolist()
        return int(first_bad), {**self.known, **dict(zip(self.names, values, strict=True))}


def sent(values: list[Tensor], device: torch.device) -> Tensor:
    """Numbers of the device as one tensor, on its way to the host."""
    together = torch.stack([x.to(device, torch.float64) for x in values])
    if device.type != "cuda":
        return together
    return torch.empty(len(values), dtype=torch.float64, pin_memory=True).copy_(together, non_blocking=True)
