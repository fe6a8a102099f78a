"""DINO's way to keep all codes in use: the teacher's logits are centred and then sharpened."""

import torch
from torch import Tensor, nn

from entrec import checks
from entrec.branches.sinkhorn import Total, total_over_ranks


class Centre(nn.Module):
    r"""A moving average of the teacher's mean logits (DINO, Caron et al., 2021, Eq. 4), in float32.

    .. math:: c \leftarrow m\, c + (1 - m) \frac1n \sum_i \ell_i

    Args:
        dim: of the logits.
        momentum: m, from 0 to 1.

    Example:
        >>> centre = Centre(2)
        >>> centre.update(torch.tensor([[10.0, 0.0], [30.0, 0.0]]))
        >>> centre.value
        tensor([2., 0.])
    """

    value: Tensor

    def __init__(self, dim: int, momentum: float = 0.9) -> None:
        super().__init__()
        checks.whole("dim", dim, 1)
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be from 0 to 1, got {momentum}")
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(dim))

    @torch.no_grad()
    def update(self, logits: Tensor, total: Total = total_over_ranks) -> None:
        """One step of the average, towards the mean of all ranks' rows, each row counting the same.

        Args:
            logits: the teacher's, of all of its views, shape (n, dim).
            total: adds up over ranks.
        """
        checks.batch("logits", logits)
        checks.alike("the centre", self.value, "logits", logits, rows=False)
        sums = checks.at_least_float32(logits).sum(dim=0).to(self.value)
        sums_and_rows = total(torch.cat([sums, sums.new_full((1,), len(logits))]))
        self.value.lerp_(sums_and_rows[:-1] / sums_and_rows[-1], 1 - self.momentum)

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return f"dim={len(self.value)}, momentum={self.momentum}"


@torch.no_grad()
def teacher_probabilities(logits: Tensor, centre: Tensor, temperature: float) -> Tensor:
    r"""The teacher's codes :math:`\mathrm{softmax}((\ell - c) / \tau)` without gradient; (k, w), (w,) -> (k, w).

    Args:
        logits: the teacher's.
        centre: `Centre.value`.
        temperature: tau, below the student's so that the codes are sharper than what predicts them; 0.04 in the paper.
    """
    checks.batch("logits", logits)
    checks.alike("centre", centre, "logits", logits, rows=False)
    checks.positive("temperature", temperature)
    return torch.softmax((checks.at_least_float32(logits) - centre) / temperature, dim=-1)
