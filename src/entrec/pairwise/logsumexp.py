"""The pairwise operation as it is called: the public function with its checks, and what the estimators call after theirs."""

from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from entrec import checks
from entrec.cards import is_transformed
from entrec.pairwise import backends, operator, ranks
from entrec.pairwise.backends import Backend, Precision, Spec
from entrec.pairwise.ranks import Shares
from entrec.pairwise.rows import directions as directions_of
from entrec.pairwise.similarity import NamedSimilarity, Similarity, exponent

# exp(2 x 30) is a float32 with room for sums and for gradients: similarities within +-30 need no running maximum.
_BOUNDED_UP_TO = 30.0


class How(NamedTuple):
    """How a pairwise sum is computed: what callers choose and pass through."""

    precision: Precision = "fast"
    backend: Backend = "auto"
    shares: Shares | None = None  # of the batch on each rank, where all ranks' rows are summed


AS_USUAL = How()


def pairwise_logsumexp(
    a: Tensor,
    b: Tensor,
    similarity: Similarity,
    scale: float | Tensor = 1.0,
    exclude_diagonal: bool = False,
    precision: Precision = "fast",
    backend: Backend = "auto",
    *,
    validate: bool = True,
) -> Tensor:
    r"""Logarithm of the summed exponential similarities of each `a` to all `b`.

    .. math:: \ell_i = \log \sum_j \exp s(a_i, b_j)

    Args:
        a: shape (..., k, d).
        b: shape (..., m, d), with the same leading dimensions.
        similarity: `"dot"` is scale a.b; `"cosine"` is that of the rows' directions; `"sqeuclidean"` is
            -scale |a-b|^2; `"l1"` is -scale sum |a-b|;
            `("lp", p)` is -scale sum |a-b|^p (no root).
        scale: a positive number, or a tensor of one element that may be learnt.
        exclude_diagonal: leave out the pairs i = j.
        precision: `"fast"` lets a GPU's matrix units multiply in half precision with float32 sums: a gradient at unit vectors
            within 2e-3 of the exact one, norm-wise, for scale <= 10, and in proportion to the scale above; values within
            5e-4 of the scale. `"ieee"` is as exact as float32 lets it be: within 1e-5 down to a temperature of 0.01, unless
            all points nearly coincide. On a CPU both are the latter.
        backend: `"dense"` makes the whole matrix at once; `"tiled"` never holds more than a tile of it, and makes it again
            for the gradient; `"triton"` does so in fused kernels on a CUDA device; `"auto"` chooses by device, size and dtype.
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
    checks.choice("precision", precision, Precision)
    checks.choice("backend", backend, Backend)
    values = checks.ValueChecks(validate)
    similarity = _similarity(similarity, values)
    scale = checks.positive("scale", scale, values)
    checks.single("scale", scale)
    values.finite("a", a)
    values.finite("b", b)
    values.raise_or_flag()
    wide_a, wide_b = checks.same_dtype(a, b)
    a, b = wide_a, (wide_a if a is b else wide_b)
    return logsumexp(a, b, similarity, scale, exclude_diagonal, How(precision, backend))


def logsumexp(
    a: Tensor,
    b: Tensor,
    similarity: Similarity,
    scale: float | Tensor,
    exclude_diagonal: bool,
    how: How = AS_USUAL,
    units: bool = False,
) -> Tensor:
    """`pairwise_logsumexp` for inputs that have been checked and are in float32 or float64.

    With `how.shares` a and b are this rank's rows, and the sums of all ranks' rows over all ranks' rows come back. With
    `units` the rows of a "cosine" are on the sphere already.
    """
    dtype = a.dtype
    a, other, learnt, spec = _operands(a, b, similarity, scale, exclude_diagonal, how, units)
    if how.shares is None:
        return operator.logsumexp(a, other, learnt, spec).to(dtype)
    return ranks.logsumexp(a, other, learnt, spec, how.shares).to(dtype)


def less_mean_logsumexp(
    constant: float | Tensor, z: Tensor, scale: float | Tensor, exclude_diagonal: bool, how: How = AS_USUAL
) -> Tensor:
    """The constant less the mean over rows of `logsumexp(z, z, "cosine", ...)`, (..., k, d) -> (...): cheaper than in turn."""
    if how.shares is None and not torch.compiler.is_compiling() and not is_transformed(z):
        z, _, _, spec = _operands(z, z, "cosine", scale, exclude_diagonal, how)
        if spec.similarity == "cosine" and not isinstance(constant, Tensor):
            return operator.less_mean_logsumexp(constant, z, spec)
        return constant - operator.logsumexp(z, None, None, spec).mean(dim=-1)
    return constant - logsumexp(z, z, "cosine", scale, exclude_diagonal, how).mean(dim=-1)


def _operands(
    a: Tensor,
    b: Tensor,
    similarity: Similarity,
    scale: float | Tensor,
    exclude_diagonal: bool,
    how: How,
    units: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None, Spec]:
    """The operator's inputs: points (the second None where both sets are one), a learnt exponent, and the rest."""
    same, bounded, directions = a is b, False, similarity == "cosine"
    if similarity == "cosine":
        if same and not units and not isinstance(scale, Tensor) and how.shares is None:
            spec = Spec("cosine", 2.0, scale, exclude_diagonal, True, True, how.precision, how.backend)
            if backends.fuses(a, None, spec):
                return a, None, None, spec
        bounded = not isinstance(scale, Tensor) and (scale <= _BOUNDED_UP_TO or (same and not exclude_diagonal))
        similarity = "dot"
        if not units:
            a, b = directions_of(a), (b if same else directions_of(b))
    p = exponent(similarity)
    p = p.reshape(()) if isinstance(p, Tensor) else p
    if isinstance(scale, Tensor):
        # A scale that is a tensor becomes the points' own, by s(ca, cb) = c^p s(a, b): it is learnt like any input. Then the
        # points are no directions any more: the gradient along them is the scale's.
        factor = scale.reshape(()).to(a.device) ** (1 / p)
        origin = 0.0 if similarity == "dot" else ranks.mean_point(a, how.shares).to(a.dtype)
        if isinstance(p, Tensor) or p < 1:  # the slope of |x|^p grows towards 0, and magnifies the rounding of the points
            if how.backend == "triton":
                raise ValueError("backend='triton' needs a scale that is a number for exponents below 1, got a tensor")
            a, b = a.double(), b.double()
        a, b, scale = ((a - origin) * factor).to(a.dtype), (b if same else ((b - origin) * factor).to(b.dtype)), 1.0
        directions = False
    name = similarity if isinstance(similarity, str) else "lp"
    learnt, fixed = (p, 0.0) if isinstance(p, Tensor) else (None, p)
    spec = Spec(name, fixed, scale, exclude_diagonal, bounded, directions, how.precision, how.backend)
    return a, (None if same else b), learnt, spec


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
