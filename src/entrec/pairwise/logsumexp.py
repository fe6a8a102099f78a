"""The public face of the pairwise operation: the checks, then the computation."""

from typing import Any, get_args

from torch import Tensor

from entrec import checks
from entrec.pairwise import dense
from entrec.pairwise.dense import NamedSimilarity, Similarity


def pairwise_logsumexp(
    a: Tensor,
    b: Tensor,
    similarity: Similarity,
    scale: float | Tensor = 1.0,
    exclude_diagonal: bool = False,
    *,
    validate: bool = True,
) -> Tensor:
    r"""Logarithm of the summed exponential similarities of each `a` to all `b`.

    .. math:: \ell_i = \log \sum_j \exp s(a_i, b_j)

    Args:
        a: shape (..., k, d).
        b: shape (..., m, d), with the same leading dimensions.
        similarity: `"dot"` is scale a.b; `"sqeuclidean"` is -scale |a-b|^2; `"l1"` is -scale sum |a-b|;
            `("lp", p)` is -scale sum |a-b|^p (no root).
        scale: a positive number, or a tensor of one element that may be learnt.
        exclude_diagonal: leave out the pairs i = j.
        validate: look for NaN and infinity now; `False` defers it to `entrec.raise_if_invalid`.

    Returns:
        Shape (..., k), in float32 or, for float64 inputs, float64.

    Example:
        >>> import torch
        >>> points = torch.eye(3)
        >>> pairwise_logsumexp(points, points, "dot").exp()  # e + 1 + 1
        tensor([4.7183, 4.7183, 4.7183])
    """
    checks.floating("a", a)
    checks.floating("b", b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-1]:
        raise ValueError(
            "a and b must have shapes (..., k, d) and (..., m, d) with the same d and leading dimensions, "
            f"got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"a and b must not be empty, got shapes {tuple(a.shape)} and {tuple(b.shape)}")
    if exclude_diagonal and b.shape[-2] == 1:
        raise ValueError("exclude_diagonal leaves no pair: b must have at least 2 rows, got 1")
    checks.same_device("a", a, "b", b)
    values = checks.ValueChecks(validate)
    similarity = _similarity(similarity, values)
    scale = checks.positive("scale", scale, values)
    checks.single("scale", scale)
    values.finite("a", a)
    values.finite("b", b)
    values.raise_or_flag()
    a, b = checks.same_dtype(a, b)
    return dense.logsumexp(a, b, similarity, scale, exclude_diagonal)


def _similarity(similarity: Any, values: checks.ValueChecks) -> Similarity:
    if isinstance(similarity, tuple) and len(similarity) == 2 and similarity[0] == "lp":
        p = checks.positive("p of ('lp', p)", similarity[1], values)
        checks.single("p of ('lp', p)", p)
        return ("lp", p)
    names = get_args(NamedSimilarity)
    for name in names:
        if similarity == name:
            return name  # type: ignore[no-any-return]
    raise ValueError(f"similarity must be one of {', '.join(map(repr, names))} or ('lp', p), got {similarity!r}")
