"""Balanced codes by Sinkhorn's iterations: every prototype gets the same share of the batch."""

from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from entrec import checks


class Total(Protocol):
    """Adds a tensor up over ranks, or takes its largest entries over them."""

    def __call__(self, x: Tensor, largest: bool = False) -> Tensor:
        """The sum over ranks, or the maximum; of the same shape, the same on every rank."""


def alone(x: Tensor, largest: bool = False) -> Tensor:
    """The total of a single process: `x` itself."""
    return x


@torch.no_grad()
def total_over_ranks(x: Tensor, largest: bool = False) -> Tensor:
    """The sum of all ranks' `x`, or the maximum, without gradient; `x` itself for a single process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return x
    total = x.detach().clone()
    dist.all_reduce(total, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return total


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3, total: Total = alone) -> Tensor:
    r"""Codes q of the largest score plus entropy among those that use each prototype equally (SwAV, Caron et al., 2020, Eq. 3).

    .. math:: \max_q \sum_{iw} q_{iw} \ell_{iw} - \epsilon \sum_{iw} q_{iw} \log q_{iw}
        \quad\text{with}\quad \sum_w q_{iw} = 1,\; \sum_i q_{iw} = k / w

    Starting from :math:`\exp(\ell / \epsilon)`, columns and then rows are divided by their sums, `iterations` times. The rows
    come last and sum to one exactly; the columns become equal as iterations go on. (A column may be divided down to any common
    mass, as the rows undo a common factor.) All in logarithms and in float32 or better: scores of any size are safe.

    Args:
        scores: of the rows with w prototypes, shape (k, w); k rows of this rank.
        epsilon: smaller is sharper, positive.
        iterations: at least 1; 3 in the paper.
        total: `total_over_ranks` balances the columns over all ranks' rows together. A column's logarithmic sum is then found
            by two exchanges of w numbers: its largest entry over ranks, and the sum of what is left after subtracting that.

    Returns:
        Codes (k, w), no gradient.

    Example:
        >>> sinkhorn(torch.tensor([[1.0, 0.0], [0.9, 0.0]]), iterations=50).round(decimals=2)  # one each, against the scores
        tensor([[0.7300, 0.2700],
                [0.2700, 0.7300]])
    """
    checks.batch("scores", scores)
    checks.positive("epsilon", epsilon)
    checks.whole("iterations", iterations, 1)
    log_q = checks.at_least_float32(scores) / epsilon
    for _ in range(iterations):
        log_q = log_q - total(log_q.amax(dim=0), largest=True)  # before the sum's logarithm, beside which it may be large
        log_q = log_q - total(log_q.exp().sum(dim=0)).log()
        log_q = log_q.log_softmax(dim=1)
    return log_q.exp()
