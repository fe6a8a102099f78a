"""Lower bounds on the mutual information I(Z1; Z2) of two views' projections (ER paper, Section 2), in nats."""

from typing import NamedTuple

from torch import Tensor

from entrec import checks
from entrec.estimators.compiling import log_count
from entrec.estimators.density import Density, check_density, check_values, log_kernel, log_kernel_sum
from entrec.estimators.entropy import Estimator, checked_how, unnormalised_entropy
from entrec.estimators.reconstruction import unnormalised_reconstruction
from entrec.pairwise import Backend, Precision


class ERBound(NamedTuple):
    """The two terms and their sum; `value` is summed before the large constants of high dimensions enter either term."""

    entropy: Tensor
    reconstruction: Tensor
    value: Tensor


def er_bound(
    z1: Tensor,
    z2: Tensor,
    density: Density,
    kernel: Density | None = None,
    estimator: Estimator = "joe",
    leave_one_out: bool = False,
    *,
    precision: Precision = "fast",
    backend: Backend = "auto",
    validate: bool = True,
) -> ERBound:
    r"""Entropy + reconstruction, the ER lower bound on I(Z1; Z2) in nats (ER paper, Eq. 2), with a kernel entropy.

    .. math:: I(Z_1; Z_2) \ge H(Z_2) + E[\log q(Z_2 \mid Z_1)]

    The inequality holds for the true entropy. Here the entropy is *estimated*, so the value can err on either side:

    - With `leave_one_out=True` the entropy is overstated on average, whatever k, d and the kernel: by smoothing where the
      kernel is wide, by sparsity where it is narrow. With the true q the value **exceeds I** on average.
    - With the self term (the default) and the density as the kernel it cannot pass log k, as InfoNCE cannot, and falls far
      below I as that nears log k or the dimension grows; where I is small it can exceed I too.

    Measured for 1000 pairs of Gaussians, q the true conditional (`benchmarks/core.py`, `entrec paper convergence`):

    ==================  =============  ===============
    \                   leave-one-out  with self term
    ==================  =============  ===============
    I = 0.5 in R^2      + 0.10         + 0.10
    I = 2.3 in R^2      + 0.02         - 0.04
    I = 2.2 in R^10     + 0.57         - 0.85
    I = 8.0 in R^2      + 17           - 2.2
    ==================  =============  ===============

    So compare values at equal k, d and kernel, and do not read the estimate itself as a guarantee.

    Args:
        z1: source projections, shape (k, d).
        z2: target projections, shape (k, d), row i of the same datum as row i of `z1`.
        density: q, the reconstruction density.
        kernel: the kernel of the entropy estimate; the density itself if not given.
        estimator: `"joe"`, which estimates the entropy, or `"plugin"`, which converges to less.
        leave_one_out: leave out each point's own kernel.
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.

    Returns:
        `ERBound(entropy, reconstruction, value)`, three scalars.
    """
    kernel = density if kernel is None else kernel
    check_density("density", density)
    check_density("kernel", kernel)
    checks.choice("estimator", estimator, Estimator)
    how = checked_how(precision, backend)
    z1, z2 = _pair(z1, z2, 2 if leave_one_out else 1, validate, density, kernel)
    log_c, kernel_log_c = density.log_normalizer(z2.shape[-1]), kernel.log_normalizer(z2.shape[-1])
    entropy = unnormalised_entropy(z2, kernel, estimator, leave_one_out, how)
    rec = unnormalised_reconstruction(z2, z1, density)
    return ERBound(entropy - kernel_log_c, rec + log_c, entropy + rec + (log_c - kernel_log_c))


def infonce_bound(
    z1: Tensor,
    z2: Tensor,
    density: Density,
    *,
    precision: Precision = "fast",
    backend: Backend = "auto",
    validate: bool = True,
) -> Tensor:
    r"""InfoNCE lower bound on I(Z1; Z2), in nats and at most log k (ER paper, Eq. 1).

    .. math:: \frac1k \sum_i \log \frac{q(z_{2,i} \mid z_{1,i})}{\frac1k \sum_j q(z_{2,j} \mid z_{1,i})}

    Args:
        z1: projections of the first view, shape (k, d).
        z2: projections of the second view, shape (k, d).
        density: gives the score f = log q; its constant cancels.
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.

    Returns:
        A scalar.
    """
    check_density("density", density)
    how = checked_how(precision, backend)
    z1, z2 = _pair(z1, z2, 1, validate, density)
    log_sum = log_kernel_sum(density, z1, z2, exclude_diagonal=False, how=how)
    return (log_kernel(density, z2, z1) - log_sum).mean() + log_count(z1.shape[0], z1)


def _pair(z1: Tensor, z2: Tensor, least_rows: int, validate: bool, *densities: Density) -> tuple[Tensor, Tensor]:
    why = " with leave_one_out=True" if least_rows > 1 else ""
    checks.batch("z1", z1, least_rows, why)
    checks.batch("z2", z2, least_rows, why)
    checks.alike("z1", z1, "z2", z2)
    values = checks.ValueChecks(validate)
    for density in densities[:1] if densities[0] is densities[-1] else densities:
        check_values(values, density, z1=z1, z2=z2)
    values.raise_or_flag()
    z1, z2 = checks.same_dtype(z1, z2)
    return z1, z2
