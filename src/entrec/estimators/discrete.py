"""Entropy and reconstruction of discrete surrogates W (ER paper, Appendix A.2), in nats."""

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators.compiling import log_count
from entrec.pairwise import ranks
from entrec.pairwise.ranks import Shares


def discrete_entropy(probs: Tensor, chunks: int = 1, *, validate: bool = True) -> Tensor:
    r"""Plug-in entropy of the batch's mean distribution, in nats (ER paper, Eqs. 11 and 12).

    .. math:: \hat H = -\sum_w \bar p(w) \log \bar p(w), \qquad \bar p(w) = \frac1k \sum_i p(w \mid z_i)

    (The paper's Eq. 11 runs its sum over samples where it means classes.) It is biased downwards, by (d-1)/(2k) for one-hot
    samples and by :math:`\sum_w \mathrm{Var}[p_w] / (2 k \bar p_w)` in general, and never exceeds log d nor, for one-hot
    samples, log k. With `chunks=r` it is the average of r such values, each from k/r consecutive rows: what one estimate per
    replica gives, at r times the bias.

    Args:
        probs: distributions over d classes, shape (k, d), rows summing to one.
        chunks: r, a divisor of k.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.

    Returns:
        A scalar. Where a class has no mass at all, its gradient is taken as zero.

    Example:
        >>> discrete_entropy(torch.eye(4))  # log 4
        tensor(1.3863)
        >>> discrete_entropy(torch.eye(4), chunks=2)  # log 2
        tensor(0.6931)
    """
    return entropy_of_distribution(batch_marginal(probs, chunks, validate=validate)).mean()


def batch_marginal(probs: Tensor, chunks: int = 1, *, validate: bool = True) -> Tensor:
    """The mean distribution of each chunk of the batch, checked; (k, d) -> (chunks, d)."""
    checks.batch("probs", probs)
    check_chunks(probs.shape[0], chunks)
    values = checks.ValueChecks(validate)
    values.distributions("probs", probs)
    values.raise_or_flag()
    return checks.at_least_float32(probs).reshape(chunks, -1, probs.shape[1]).mean(dim=1)


def entropy_of_distribution(p: Tensor) -> Tensor:
    r"""Shannon entropy :math:`-\sum_w p_w \log p_w` over the last dimension, with 0 log 0 = 0 and zero gradient there."""
    return -(p * torch.where(p > 0, p, 1.0).log()).sum(dim=-1)


def discrete_entropy_from_log_probs(log_probs: Tensor, chunks: int, shares: Shares | None = None) -> Tensor:
    """`discrete_entropy` in the log domain, unchecked, (..., k, d) -> (...): finite gradients where probabilities underflow."""
    if shares is not None and chunks > 1:  # a chunk may lie on two ranks
        log_probs, shares = ranks.gather(log_probs, shares, dim=-2), None
    *leading, k, d = log_probs.shape
    log_sums = torch.logsumexp(log_probs.reshape(*leading, chunks, k // chunks, d), dim=-2)
    if shares is not None:
        one_each = Shares((1,) * len(shares.sizes), shares.rank)
        k, log_sums = shares.total, torch.logsumexp(ranks.gather(log_sums, one_each, dim=-2), dim=-2, keepdim=True)
    log_marginal = log_sums - log_count(k // chunks, log_probs)
    return -(log_marginal.exp() * log_marginal).sum(dim=-1).mean(dim=-1)


def discrete_reconstruction(p_target: Tensor, log_q: Tensor, *, validate: bool = True) -> Tensor:
    r"""Mean expected log-probability of the target's code, in nats (ER paper, Eq. 10).

    .. math:: \widehat{\mathrm{Rec}} = \frac1k \sum_i \sum_w p(w \mid z_{2,i}) \log q(w \mid z_{1,i})

    This is minus the cross entropy of DeepCluster, SwAV and DINO; Eq. 10 is the case of one-hot targets.

    Args:
        p_target: the target's distributions over d classes, shape (k, d), rows summing to one.
        log_q: log-probabilities predicted from the source, shape (k, d), as `log_softmax` gives them.
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.

    Returns:
        A scalar. A class that the target gives no mass counts nothing, even where log_q is -infinity.

    Example:
        >>> discrete_reconstruction(torch.eye(4), torch.full((4, 4), 0.25).log())  # -log 4
        tensor(-1.3863)
    """
    checks.batch("p_target", p_target)
    checks.batch("log_q", log_q)
    checks.alike("p_target", p_target, "log_q", log_q)
    values = checks.ValueChecks(validate)
    values.distributions("p_target", p_target)
    values.log_distributions("log_q", log_q)
    values.raise_or_flag()
    p_target, log_q = checks.same_dtype(p_target, log_q)
    return expected_log_prob(p_target, log_q).mean()


def expected_log_prob(p: Tensor, log_q: Tensor) -> Tensor:
    """Sum over classes of p log q with 0 log 0 = 0, unchecked; (..., d), (..., d) -> (...)."""
    return (p * torch.where(p > 0, log_q, 0.0)).sum(dim=-1)


def check_chunks(rows: int, chunks: int) -> None:
    """`chunks` divides the batch into equal parts."""
    checks.whole("chunks", chunks, 1)
    if rows % chunks:
        raise ValueError(f"chunks must divide the batch into equal parts, got chunks={chunks} for {rows} rows")
