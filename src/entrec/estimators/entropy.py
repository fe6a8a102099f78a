"""Entropy of projections by kernel density estimation (ER paper, Section 4.1), in nats."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators.compiling import log_count
from entrec.estimators.density import Density, Parameter, check_density, check_values, log_kernel_sum
from entrec.pairwise import AS_USUAL, Backend, How, Precision, ranks
from entrec.pairwise.logsumexp import less_mean_logsumexp

Estimator = Literal["joe", "plugin"]


def kde_log_density(
    z: Tensor,
    kernel: Density,
    reference: Tensor | None = None,
    leave_one_out: bool = False,
    *,
    precision: Precision = "fast",
    backend: Backend = "auto",
    validate: bool = True,
) -> Tensor:
    r"""Logarithm of the kernel density estimate at each point, in nats (ER paper, Eq. 9).

    .. math:: \log \hat p(z_i) = \log \frac1m \sum_{j=1}^m q(z_i \mid r_j)

    With `leave_one_out` the sum runs over :math:`j \ne i` and is divided by m - 1, so that a point does not vouch for itself.

    Args:
        z: points to score, shape (k, d).
        kernel: the density q at its bandwidth, for instance `VonMisesFisher(1.0).with_bandwidth(0.1)`.
        reference: the points that carry the kernels, shape (m, d); `z` itself if not given.
        leave_one_out: leave out each point's own kernel; only without `reference`.
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.

    Returns:
        Shape (k,). If all points are equal, this is `kernel.log_prob(z, z)`.

    Example:
        >>> from entrec import Gaussian
        >>> kde_log_density(torch.zeros(5, 2), Gaussian(sigma=1.0))  # -log(2 pi)
        tensor([-1.8379, -1.8379, -1.8379, -1.8379, -1.8379])
    """
    check_density("kernel", kernel)
    checks.batch("z", z, *_least_rows(leave_one_out))
    values = checks.ValueChecks(validate)
    check_values(values, kernel, z=z)
    if reference is not None:
        if leave_one_out:
            raise ValueError("leave_one_out=True needs the points themselves as reference; got another reference")
        checks.batch("reference", reference)
        checks.alike("z", z, "reference", reference, rows=False)
        check_values(values, kernel, reference=reference)
    how = checked_how(precision, backend)
    values.raise_or_flag()
    z, *others = checks.same_dtype(z) if reference is None else checks.same_dtype(z, reference)
    reference = others[0] if others else z
    return log_kernel_mean(z, kernel, reference, leave_one_out, how) + kernel.log_normalizer(z.shape[-1])


def kde_entropy(
    z: Tensor,
    kernel: Density,
    estimator: Estimator = "joe",
    leave_one_out: bool = False,
    *,
    precision: Precision = "fast",
    backend: Backend = "auto",
    gather_distributed: bool = False,
    validate: bool = True,
) -> Tensor:
    r"""Kernel estimate of the differential entropy of Z, in nats (ER paper, Eqs. 7 and 8).

    `"joe"` is :math:`-\frac1k \sum_i \log \hat p(z_i)`, which is consistent as the bandwidth shrinks with k. `"plugin"` is
    :math:`-\sum_i w_i \log \hat p(z_i)` with :math:`w_i = \hat p(z_i) / \sum_j \hat p(z_j)`: as good an objective, but it
    converges to :math:`-E[p \log p] / E[p]`, which is at most the entropy (lower by d/4 for a Gaussian), so it is not a
    measurement. The weights sum to one, as in the published experiments; the paper's formula leaves them unnormalised.

    With the self term the value lies between its floor :math:`-\log q(z \mid z)`, where all points are equal, and that floor
    + log k. With `leave_one_out` it has no such ceiling, and Joe's overstates the entropy on average. To measure, use Joe's
    with `leave_one_out=True`.

    Args:
        z: projections, shape (..., k, d); on the sphere only their directions count.
        kernel: the density at its bandwidth, for instance `VonMisesFisher(kappa=10.0)`.
        estimator: `"joe"` or `"plugin"`.
        leave_one_out: leave out each point's own kernel.
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        gather_distributed: the entropy of all ranks' projections together, the same on every rank (see `entrec.losses`).
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.

    Returns:
        Shape (...): a scalar for one batch, one value for each of several.
    """
    check_density("kernel", kernel)
    checks.choice("estimator", estimator, Estimator)
    how = checked_how(precision, backend)

    def check() -> tuple[Tensor, ...]:
        checks.batch("z", z, *_least_rows(leave_one_out and not gather_distributed), leading=True)
        values = checks.ValueChecks(validate)
        check_values(values, kernel, z=z)
        values.raise_or_flag()
        return (checks.at_least_float32(z),)

    (z,), how = checked_across_ranks(check, how, z, gather_distributed, 2 if leave_one_out else 1)
    return unnormalised_entropy(z, kernel, estimator, leave_one_out, how, less=kernel.log_normalizer(z.shape[-1]))


def joe(log_density: Tensor) -> Tensor:
    r"""Joe's estimate :math:`-\frac1k \sum_i \log \hat p(z_i)` over the last dimension (ER paper, Eq. 7)."""
    return -_average(log_density, "joe")


def plugin(log_density: Tensor) -> Tensor:
    r"""The plug-in :math:`-\sum_i w_i \log \hat p(z_i)`, w the normalised densities, over the last dimension (Eq. 8)."""
    return -_average(log_density, "plugin")


def _average(log_density: Tensor, estimator: Estimator) -> Tensor:
    if estimator == "joe":
        return log_density.mean(dim=-1)
    weight = torch.softmax(log_density, dim=-1)
    return (weight * torch.where(weight > 0, log_density, 0.0)).sum(dim=-1)


def unnormalised_entropy(
    z: Tensor,
    kernel: Density,
    estimator: Estimator,
    leave_one_out: bool,
    how: How = AS_USUAL,
    less: Parameter = 0.0,
) -> Tensor:
    """The entropy plus the kernel's log C minus `less`, which is that log C where nothing cancels it; (..., k, d) -> (...)."""
    # Both averages of (log-sums - log n) are those of the log-sums, - log n; the constants meet before they meet the tensor.
    n = z.shape[-2] if how.shares is None else how.shares.total
    constant = log_count(n - (1 if leave_one_out else 0), z) - less
    if estimator == "joe" and kernel.on_sphere:
        return less_mean_logsumexp(constant, z, kernel.factor, leave_one_out, how)
    return constant - _average(log_kernel_sum(kernel, z, z, leave_one_out, how), estimator)


def log_kernel_mean(z: Tensor, kernel: Density, reference: Tensor, leave_one_out: bool, how: How = AS_USUAL) -> Tensor:
    """The log-density estimate without the kernel's log C, unchecked; (..., k, d), (..., m, d) -> (..., k)."""
    others = reference.shape[-2] - (1 if leave_one_out else 0)
    return log_kernel_sum(kernel, z, reference, leave_one_out, how) - log_count(others, z)


def checked_how(precision: Precision, backend: Backend) -> How:
    """The options of a pairwise sum, if they are some."""
    if precision == AS_USUAL.precision and backend == AS_USUAL.backend:  # the small batch of most calls feels each check
        return AS_USUAL
    checks.choice("precision", precision, Precision)
    checks.choice("backend", backend, Backend)
    return How(precision, backend)


def checked_across_ranks(
    check: Callable[[], tuple[Tensor, ...]], how: How, like: Any, gather_distributed: bool, least_rows: int = 1
) -> tuple[tuple[Tensor, ...], How]:
    """What the check returns; where ranks are to act as one, they learn of each other's faults and rows (`ranks.agree`)."""
    if not gather_distributed:
        return check(), how
    found, shares = ranks.agree(check, like, least_rows)
    return found, how._replace(shares=shares)


def _least_rows(leave_one_out: bool) -> tuple[int, str]:
    return (2, " with leave_one_out=True") if leave_one_out else (1, "")
