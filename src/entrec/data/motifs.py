"""Motifs as signed distance functions: how far a point is from the edge, negative inside, in units of the motif's radius.

Each fits into the unit disc and is the same, up to a turn, in a mirror: a flip never makes one motif into another. Distances
are exact near the edge, which is where a renderer needs them.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def disc(x: Tensor, y: Tensor) -> Tensor:
    """A filled circle."""
    return torch.hypot(x, y) - 0.8


def ring(x: Tensor, y: Tensor) -> Tensor:
    """A circle drawn with a broad pen."""
    return (torch.hypot(x, y) - 0.76).abs() - 0.2


def square(x: Tensor, y: Tensor) -> Tensor:
    """A filled square."""
    return torch.maximum(x.abs(), y.abs()) - 0.7


def frame(x: Tensor, y: Tensor) -> Tensor:
    """A square drawn with a broad pen."""
    return (torch.maximum(x.abs(), y.abs()) - 0.55).abs() - 0.15


def triangle(x: Tensor, y: Tensor) -> Tensor:
    """A filled equilateral triangle."""
    return torch.maximum(-y, math.sqrt(0.75) * x.abs() + 0.5 * y) - 0.5


def cross(x: Tensor, y: Tensor) -> Tensor:
    """Two crossed bars."""
    return torch.minimum(torch.maximum(x.abs() - 0.95, y.abs() - 0.25), torch.maximum(x.abs() - 0.25, y.abs() - 0.95))


def star(x: Tensor, y: Tensor) -> Tensor:
    """A star with five points."""
    fifth = 2 * math.pi / 5
    turn = ((torch.atan2(x, y) + fifth / 2) % fifth - fifth / 2).abs()  # from the nearest point of the star
    radius = torch.hypot(x, y)
    inner = 0.42
    across, along = inner * math.sin(fifth / 2), 1 - inner * math.cos(fifth / 2)  # the edge from a point to a notch
    return ((radius * turn.cos() - 1) * across + radius * turn.sin() * along) / math.hypot(across, along)


def crescent(x: Tensor, y: Tensor) -> Tensor:
    """A disc with a bite of its own size taken out."""
    return torch.maximum(torch.hypot(x, y) - 0.95, 0.75 - torch.hypot(x - 0.5, y))


def heart(x: Tensor, y: Tensor) -> Tensor:
    """A square on its corner with a disc on each of its upper sides."""
    side, y = 0.5, y + 0.2
    u, v = (x.abs() + y) / math.sqrt(2), (y - x.abs()) / math.sqrt(2)
    corner = torch.maximum(u.abs(), v.abs()) - side
    return torch.minimum(corner, torch.hypot(u - side, v) - side)


def bars(x: Tensor, y: Tensor) -> Tensor:
    """Two parallel bars."""
    return torch.maximum(x.abs() - 0.8, (y.abs() - 0.4).abs() - 0.18)


Motif = Callable[[Tensor, Tensor], Tensor]
MOTIFS: dict[str, Motif] = {f.__name__: f for f in (disc, ring, square, frame, triangle, cross, star, crescent, heart, bars)}
