"""BYOL's loss: predictions of one view's projection from another's."""

import torch
from torch import Tensor, nn

from entrec import checks
from entrec.estimators.entropy import checked_across_ranks
from entrec.estimators.objective import pairs_of_views
from entrec.losses.pairs import Views, check_groups, first
from entrec.pairwise import AS_USUAL, ranks
from entrec.pairwise.rows import cosines


class BYOLLoss(nn.Module):
    r"""Squared distance of unit vectors between prediction and teacher's projection (BYOL, Grill et al., 2020, Eq. 2).

    .. math:: \operatorname*{mean}_{s \ne t} \frac1k \sum_i \big(2 - 2 \cos(p_{s,i}, z_{t,i})\big)

    The mean runs over the ordered pairs of different views; the paper adds its two, which is twice this. No gradient flows into
    the targets. Seen as ER, a reconstruction by a von Mises-Fisher density without an entropy. With the student's own
    projections as targets it is SimSiam's loss (times 2, plus 2).

    Args:
        gather_distributed: the mean over all ranks' rows instead of this rank's own (see `entrec.losses`).
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> z = torch.eye(4)
        >>> BYOLLoss()((z, 2 * z), (z, z))  # only directions count
        tensor(0.)
        >>> BYOLLoss()((z, z), (-z, z))  # one pair opposite, one equal
        tensor(2.)
    """

    def __init__(self, gather_distributed: bool = False, *, validate: bool = True) -> None:
        super().__init__()
        self.gather_distributed = gather_distributed
        self.validate = validate

    def forward(self, predictions: Views, targets: Views) -> Tensor:
        """The loss, a scalar from 0 to 4.

        Args:
            predictions: the predictor's outputs, V >= 2 tensors of shape (k, d), row i of each from the same datum.
            targets: the teacher's projections of the first T <= V views, each (k, d).
        """
        names = ("predictions", "targets")

        def check() -> tuple[Tensor, ...]:
            check_groups(names, predictions, targets)
            groups = {f"{name}[{i}]": x for name, g in zip(names, (predictions, targets), strict=True) for i, x in enumerate(g)}
            values = checks.ValueChecks(self.validate)
            for name, x in groups.items():
                checks.on_a_sphere(name, x)
                values.directions(name, x)
            values.raise_or_flag()
            stacked = checks.same_dtype(*groups.values())
            return torch.stack(stacked[: len(predictions)]), torch.stack(stacked[len(predictions) :]).detach()

        (sources, teacher), how = checked_across_ranks(check, AS_USUAL, first(predictions), self.gather_distributed)
        source, target = pairs_of_views(sources, teacher)
        return 2 - 2 * ranks.gather(cosines(source, target), how.shares).mean()

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return f"gather_distributed={self.gather_distributed}"
