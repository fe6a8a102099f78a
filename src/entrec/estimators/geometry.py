"""How projections lie in their space: alignment, uniformity and effective rank."""

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators.compiling import log_count
from entrec.estimators.discrete import entropy_of_distribution
from entrec.estimators.entropy import checked_how
from entrec.pairwise import Backend, How, Precision
from entrec.pairwise.logsumexp import logsumexp
from entrec.pairwise.similarity import similarity_of_difference, to_sphere


def alignment(z1: Tensor, z2: Tensor, alpha: float = 2.0, *, validate: bool = True) -> Tensor:
    r"""Mean distance of the two views of a datum on the sphere, :math:`\frac1k \sum_i \|z_{1,i} - z_{2,i}\|_2^\alpha`.

    Wang and Isola (2020); with alpha = 2 it is 2 - 2 times the mean cosine, so minus it is the reconstruction of a von
    Mises-Fisher density up to its constants. Lower is more aligned.

    Args:
        z1: projections of the first view, shape (k, d); only their directions count.
        z2: projections of the second view, shape (k, d).
        alpha: exponent of the distance, positive.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.
    """
    checks.batch("z1", z1)
    checks.batch("z2", z2)
    checks.alike("z1", z1, "z2", z2)
    checks.positive("alpha", alpha)
    values = checks.ValueChecks(validate)
    values.directions("z1", z1)
    values.directions("z2", z2)
    values.raise_or_flag()
    z1, z2 = checks.same_dtype(z1, z2)
    return distances_on_sphere(z1, z2, alpha).mean()


def distances_on_sphere(z1: Tensor, z2: Tensor, alpha: float) -> Tensor:
    """The distances to the power alpha of matching rows' directions, unchecked; zero gradient where they are equal."""
    squared = -similarity_of_difference(to_sphere(z1) - to_sphere(z2), "sqeuclidean")
    return torch.where(squared > 0, torch.where(squared > 0, squared, 1.0) ** (alpha / 2), 0.0)


def uniformity(
    z: Tensor, t: float = 2.0, *, precision: Precision = "fast", backend: Backend = "auto", validate: bool = True
) -> Tensor:
    r"""Log of the mean Gaussian potential of all pairs, :math:`\log \operatorname*{mean}_{i \ne j} e^{-t \|z_i - z_j\|^2}`.

    Wang and Isola (2020). By Jensen's inequality minus it is at most Joe's leave-one-out entropy with a Gaussian kernel,
    sigma^2 = 1/(2t), up to that kernel's constant. Lower is more uniform; 0 is a single point.

    Args:
        z: projections, shape (k, d) with k >= 2; only their directions count.
        t: scale of the potential, positive.
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.
    """
    checks.batch("z", z, 2)
    checks.positive("t", t)
    how = checked_how(precision, backend)
    values = checks.ValueChecks(validate)
    values.directions("z", z)
    values.raise_or_flag()
    return log_mean_potential(checks.at_least_float32(z), t, how)


def log_mean_potential(z: Tensor, t: float, how: How) -> Tensor:
    """The uniformity of each (..., k, d) -> (...), unchecked; of unit vectors, -t |x-y|^2 = 2t (x.y - 1)."""
    log_sums = logsumexp(z, z, "cosine", 2 * t, exclude_diagonal=True, how=how)
    k = log_sums.shape[-1]
    return torch.logsumexp(log_sums, dim=-1) - 2 * t - log_count(k * (k - 1), z)


def effective_rank(z: Tensor, *, validate: bool = True) -> Tensor:
    r"""Exponential of the entropy of the normalised singular values (Roy and Vetterli, 2007; "RankMe").

    .. math:: \exp\Big(-\sum_i p_i \log p_i\Big), \qquad p_i = \sigma_i / \sum_j \sigma_j

    Between 1 (all rows on one line through the origin; so all rows equal, too) and min(k, d). The rows are not centred:
    centring would turn a collapsed representation into its noise, which can have any rank.

    Args:
        z: projections or representations, shape (k, d), not all zero.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.
    """
    checks.batch("z", z)
    values = checks.ValueChecks(validate)
    values.finite("z", z)
    values.directions("z, taken as one vector,", z.reshape(1, -1))
    values.raise_or_flag()
    singular_values = torch.linalg.svdvals(checks.at_least_float32(z))
    return entropy_of_distribution(singular_values / singular_values.sum()).exp()
