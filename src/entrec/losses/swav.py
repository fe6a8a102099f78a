"""SwAV's loss: one view's balanced codes, predicted from the other views."""

from torch import Tensor, nn

from entrec import checks
from entrec.losses.pairs import Views, code_cross_entropy


class SwAVLoss(nn.Module):
    r"""Swapped prediction: the cross entropy of one view's code with another's softmax (SwAV, Caron et al., 2020, Eq. 2).

    .. math:: -\operatorname*{mean}_{s \ne t} \frac1k \sum_i \sum_w q_{t,i}(w) \log \mathrm{softmax}(\ell_{s,i} / \tau)_w

    in nats, with the scores :math:`\ell = z^\top c` of projections with prototypes (`entrec.branches.Prototypes`) and the
    balanced codes q that `entrec.branches.sinkhorn` makes of them. The mean is over the pairs of a view with a code and
    another view, as in the reference code; the paper's Eq. 1 adds two.

    Args:
        temperature: tau, which divides the scores, positive.
        gather_distributed: the mean over all ranks' rows instead of this rank's own (see `entrec.losses`).
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> import torch
        >>> scores = torch.eye(4)
        >>> SwAVLoss(temperature=0.1)((scores, scores), (scores, scores))  # log(1 + 3 exp(-10))
        tensor(0.0001)
    """

    def __init__(self, temperature: float = 0.1, gather_distributed: bool = False, *, validate: bool = True) -> None:
        super().__init__()
        checks.positive("temperature", temperature)
        self.temperature = temperature
        self.gather_distributed = gather_distributed
        self.validate = validate

    def forward(self, logits: Views, codes: Views) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: the scores of projections with prototypes, V >= 2 tensors of shape (k, w).
            codes: of the first T <= V views (the full-size ones), each (k, w), rows summing to one; they get no gradient.
        """
        names = ("logits", "codes")
        return code_cross_entropy(logits, codes, names, self.temperature, self.gather_distributed, self.validate)

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return f"temperature={self.temperature}, gather_distributed={self.gather_distributed}"
