"""Reconstruction of one view's projections from the other's (ER paper, Section 4.1), in nats."""

from torch import Tensor

from entrec import checks
from entrec.estimators.density import Density, check_density, check_values, log_kernel
from entrec.pairwise import AS_USUAL, How, ranks


def reconstruction(z_target: Tensor, z_source: Tensor, density: Density, *, validate: bool = True) -> Tensor:
    r"""Mean log-density of the target given the source, in nats (ER paper, Eq. 6, with its constant).

    .. math:: \widehat{\mathrm{Rec}} = \frac1k \sum_i \log q(z_{2,i} \mid z_{1,i})

    The mean over i.i.d. pairs is unbiased, with a variance of at most (range of log q)^2 / (4k): kappa^2 / k on the sphere.

    Args:
        z_target: what is reconstructed, shape (k, d).
        z_source: what it is reconstructed from, shape (k, d).
        density: q.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> from entrec import Gaussian
        >>> z = torch.zeros(5, 2)
        >>> reconstruction(z, z, Gaussian(sigma=1.0))  # -log(2 pi)
        tensor(-1.8379)
    """
    check_density("density", density)
    checks.batch("z_target", z_target)
    checks.batch("z_source", z_source)
    checks.alike("z_target", z_target, "z_source", z_source)
    values = checks.ValueChecks(validate)
    check_values(values, density, z_target=z_target, z_source=z_source)
    values.raise_or_flag()
    z_target, z_source = checks.same_dtype(z_target, z_source)
    return unnormalised_reconstruction(z_target, z_source, density) + density.log_normalizer(z_target.shape[-1])


def unnormalised_reconstruction(z_target: Tensor, z_source: Tensor, density: Density, how: How = AS_USUAL) -> Tensor:
    """The reconstruction without the density's log C, unchecked; mean over all leading dimensions of (..., k, d)."""
    return ranks.gather(log_kernel(density, z_target, z_source), how.shares).mean()
