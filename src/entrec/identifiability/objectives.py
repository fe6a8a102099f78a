"""What the encoder is trained by: InfoNCE as in the tables, and the ER bound; values go unchecked, as a step may not wait."""

import torch
from torch import Tensor

from entrec.estimators.density import log_kernel, log_kernel_sum
from entrec.estimators.entropy import unnormalised_entropy
from entrec.estimators.reconstruction import unnormalised_reconstruction
from entrec.identifiability.laws import Law
from entrec.pairwise import How, Precision


def infonce_loss(z1: Tensor, z2: Tensor, density: Law, precision: Precision = "ieee") -> Tensor:
    r"""InfoNCE whose negatives are the batch of z1 itself (Zimmermann et al., 2021), in nats.

    .. math:: -\frac1k \sum_i \log \frac{q(z_{2i}|z_{1i})}{q(z_{2i}|z_{1i}) + \sum_j q(z_{1j}|z_{1i})}

    As in the published experiments, a row is among its own negatives, and the positive is in the denominator too.

    Args:
        z1: projections of the first view, shape (k, d).
        z2: projections of the second view, shape (k, d).
        density: q, whose constant cancels.
        precision: of the pairwise sums (see `entrec.pairwise_logsumexp`).
    """
    positive = log_kernel(density, z2, z1)
    negatives = log_kernel_sum(density, z1, z1, exclude_diagonal=False, how=How(precision))
    return (torch.logaddexp(positive, negatives) - positive).mean()


def er_loss(
    z1: Tensor, z2: Tensor, density: Law, bandwidth: float, precision: Precision = "ieee", kernel: float | None = None
) -> Tensor:
    r"""Minus the ER bound, in nats: :math:`-\hat H_c(Z_2) - \frac1k \sum_i \log q_b(z_{2i}|z_{1i})`.

    In the paper's tables both terms have the density at the bandwidth b, as their column :math:`q_h` says. With the entropy's
    alone ten times as wide, the bound would be highest where all projections are one point: by 0.8 nats in the first row. A
    narrower one estimates the entropy better, and leaves q as it is.

    Args:
        z1: projections of the first view, shape (k, d).
        z2: projections of the second view, shape (k, d), whose entropy is Joe's, with the self term.
        density: q.
        bandwidth: b.
        precision: of the pairwise sums (see `entrec.pairwise_logsumexp`).
        kernel: c, the bandwidth of the entropy's kernel; None: b.
    """
    q = density.with_bandwidth(bandwidth)
    own = q if kernel is None else density.with_bandwidth(kernel)
    entropy = unnormalised_entropy(z2, own, "joe", leave_one_out=False, how=How(precision))
    loss = -(entropy + unnormalised_reconstruction(z2, z1, q))
    d = z1.shape[1]
    return loss if kernel is None else loss + own.log_normalizer(d) - q.log_normalizer(d)  # which else cancel
