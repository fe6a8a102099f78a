"""Motifs as signed distance functions: how far a point is from the edge, negative inside, in units of the motif's radius.

Each lies in the unit disc and is its own mirror image, so that a flip never makes one into another, and all cover nearly the
same area, 4/3, so that none is known by how bright its picture is. Distances are exact near straight and round edges, which
is where a renderer needs them.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Motif = Callable[[Tensor, Tensor], Tensor]


def disc(x: Tensor, y: Tensor) -> Tensor:
    """A filled circle."""
    return torch.hypot(x, y) - 0.65


def ring(x: Tensor, y: Tensor) -> Tensor:
    """A circle drawn with a broad pen."""
    return (torch.hypot(x, y) - 0.64).abs() - 0.165


def square(x: Tensor, y: Tensor) -> Tensor:
    """A filled square."""
    return torch.maximum(x.abs(), y.abs()) - 0.576


def frame(x: Tensor, y: Tensor) -> Tensor:
    """A square drawn with a broad pen."""
    return (torch.maximum(x.abs(), y.abs()) - 0.55).abs() - 0.15


def triangle(x: Tensor, y: Tensor) -> Tensor:
    """A filled equilateral triangle on its base."""
    return torch.maximum(-y, math.sqrt(0.75) * x.abs() + 0.5 * y) - 0.5


def cross(x: Tensor, y: Tensor) -> Tensor:
    """Two crossed bars."""
    long, broad = 0.855, 0.225
    return torch.minimum(torch.maximum(x.abs() - long, y.abs() - broad), torch.maximum(x.abs() - broad, y.abs() - long))


def star(x: Tensor, y: Tensor) -> Tensor:
    """A star with five points, one of them up."""
    fifth, inner = 2 * math.pi / 5, 0.452
    turn = ((torch.atan2(x, y) + fifth / 2) % fifth - fifth / 2).abs()  # from the nearest point of the star
    radius = torch.hypot(x, y)
    across, along = inner * math.sin(fifth / 2), 1 - inner * math.cos(fifth / 2)  # the edge from a point to a notch
    return ((radius * turn.cos() - 1) * across + radius * turn.sin() * along) / math.hypot(across, along)


def crescent(x: Tensor, y: Tensor) -> Tensor:
    """A disc with a bite taken out above."""
    return torch.maximum(torch.hypot(x, y) - 0.92, 0.73 - torch.hypot(x, y - 0.5))


def heart(x: Tensor, y: Tensor) -> Tensor:
    """A square on its corner with half a disc on each of its upper sides."""
    side, y = 0.431, y + 0.17
    u, v = (y + x.abs()) / math.sqrt(2), (y - x.abs()) / math.sqrt(2)
    corner = torch.maximum(u.abs(), v.abs()) - side
    return torch.minimum(corner, torch.hypot(u - side, v) - side)


def bars(x: Tensor, y: Tensor) -> Tensor:
    """Two parallel bars."""
    return torch.maximum(x.abs() - 0.79, (y.abs() - 0.4).abs() - 0.21)


MOTIFS: dict[str, Motif] = {f.__name__: f for f in (disc, ring, square, frame, triangle, cross, star, crescent, heart, bars)}
