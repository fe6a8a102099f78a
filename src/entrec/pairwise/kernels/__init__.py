"""The sums and their gradients in fused Triton kernels: float32 points on a CUDA device (or in Triton's interpreter)."""

from typing import Any

from torch import Tensor

from entrec.launch import INTERPRETED
from entrec.pairwise.kernels import distances, dots, narrow, rows, sphere
from entrec.pairwise.similarity import exponent
from entrec.pairwise.tiled import Gradients, Pairs, Weighing

__all__ = ["INTERPRETED", "gradients", "log_sums", "problems", "rows", "sphere"]


def log_sums(a: Tensor, b: Tensor, pairs: Pairs, ieee: bool) -> Tensor:
    """The l_i; (..., k, d), (..., m, d) -> (..., k)."""
    x = problems(a)
    y = x if a is b else problems(b)
    if pairs.similarity == "dot":
        sums = dots.log_sums(x, y, pairs, ieee)
    else:
        across, along = _by_coordinate(x, y)
        sums = _by_differences(x).log_sums(across, along, _power(pairs), pairs)
    return sums.reshape(a.shape[:-1])


def gradients(
    a: Tensor,
    b: Tensor,
    pairs: Pairs,
    rows: Weighing | None,
    columns: Weighing | None,
    wanted: tuple[bool, bool],
    ieee: bool,
) -> Gradients:
    """The gradients in a and b, as wanted."""
    x = problems(a)
    y = x if a is b else problems(b)
    by_row, by_column = _weighing(rows), _weighing(columns)
    if pairs.similarity == "dot":
        found = dots.gradients(x, y, pairs, by_row, by_column, wanted, ieee)
    else:
        found = _gradients_by_differences(x, y, pairs, by_row, by_column, wanted)
    in_a, in_b = (None if g is None else g.reshape(z.shape) for g, z in ((found.rows, a), (found.columns, b)))
    return Gradients(in_a, in_b, None)


def problems(x: Tensor) -> Tensor:
    """Leading dimensions as one."""
    return (x if x.ndim == 3 else x.reshape(-1, *x.shape[-2:])).contiguous()


def _weighing(x: Weighing | None) -> Weighing | None:
    return None if x is None else Weighing(*(y.reshape(-1, y.shape[-1]).contiguous() for y in x))


def _gradients_by_differences(
    a: Tensor, b: Tensor, pairs: Pairs, rows: Weighing | None, columns: Weighing | None, wanted: tuple[bool, bool]
) -> Gradients:
    (x, y), p, family = _by_coordinate(a, b), _power(pairs), _by_differences(a)
    in_a = family.pull(x, y, p, rows, columns, pairs.offset, pairs).mT.contiguous() if wanted[0] else None
    in_b = family.pull(y, x, p, columns, rows, -pairs.offset, pairs).mT.contiguous() if wanted[1] else None
    return Gradients(in_a, in_b, None)


def _by_coordinate(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Points column by column, so that a program reads one coordinate of many at once."""
    x = a.mT.contiguous()
    return x, x if a is b else b.mT.contiguous()


def _by_differences(x: Tensor) -> Any:
    """The kernels for points of so many dimensions."""
    return narrow if x.shape[-1] <= narrow.WIDEST else distances


def _power(pairs: Pairs) -> float:
    return float(exponent(pairs.similarity))
