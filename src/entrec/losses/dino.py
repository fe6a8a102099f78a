"""DINO's loss: the teacher's centred and sharpened codes, predicted from the other views."""

from torch import Tensor, nn

from entrec import checks
from entrec.losses.pairs import Views, code_cross_entropy


class DINOLoss(nn.Module):
    r"""Cross entropy of the teacher's codes with the student's over the pairs of different views (Caron et al., 2021, Eq. 3).

    .. math:: -\operatorname*{mean}_{s \ne t} \frac1k \sum_i \sum_w p_{t,i}(w) \log \mathrm{softmax}(\ell_{s,i} / \tau)_w

    in nats. The teacher's codes p come as probabilities, `entrec.branches.teacher_probabilities(logits, centre, temperature)`:
    centre and teacher's temperature are the teacher's, and the loss keeps no state. The paper adds up its pairs; this is their
    mean. It is log w where predictions are uniform, and at least the mean entropy of the codes. Near zero it may also mean that
    all data share one code: look at the entropy of their mean beside it (`entrec.discrete_entropy`).

    Args:
        student_temperature: tau, which divides the student's logits, positive.
        gather_distributed: the mean over all ranks' rows instead of this rank's own (see `entrec.losses`).
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> import torch
        >>> undecided, codes = torch.zeros(4, 4), torch.eye(4)
        >>> DINOLoss()((undecided, undecided), (codes, codes))  # log 4
        tensor(1.3863)
    """

    def __init__(self, student_temperature: float = 0.1, gather_distributed: bool = False, *, validate: bool = True) -> None:
        super().__init__()
        checks.positive("student_temperature", student_temperature)
        self.student_temperature = student_temperature
        self.gather_distributed = gather_distributed
        self.validate = validate

    def forward(self, logits: Views, targets: Views) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: the student's, V >= 2 tensors of shape (k, w), row i of each from the same datum.
            targets: the teacher's codes of the first T <= V views as probabilities, each (k, w); no gradient flows into them.
        """
        names, tau = ("logits", "targets"), self.student_temperature
        return code_cross_entropy(logits, targets, names, tau, self.gather_distributed, self.validate)

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return f"student_temperature={self.student_temperature}, gather_distributed={self.gather_distributed}"
