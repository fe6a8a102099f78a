"""The normalised-temperature cross entropy of SimCLR."""

from torch import Tensor

from entrec.losses.contrastive import Contrastive
from entrec.pairwise import ranks
from entrec.pairwise.logsumexp import less_mean_logsumexp
from entrec.pairwise.ranks import Shares
from entrec.pairwise.rows import cosines


class NTXentLoss(Contrastive):
    r"""SimCLR's loss: each of the 2k projections finds its other view among all 2k - 1 others (Chen et al., 2020).

    .. math:: \frac1{2k} \sum_i \Big(\log \sum_{j \ne i} e^{\cos(z_i, z_j)/\tau} - \cos(z_i, z_{i'})/\tau\Big)

    Args:
        temperature: tau, positive; an `nn.Parameter` is learnt.
        gather_distributed: the loss of all ranks' batches together instead of this rank's own (see `entrec.losses`).
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> NTXentLoss(temperature=0.1)(z, z)  # log(1 + 6 exp(-10)): each finds its other view
        tensor(0.0003)
    """

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The loss of two views' projections, each (k, d), row i of both from the same datum."""
        views, how, temperature = self.checked({"z1": z1, "z2": z2})
        positives = ranks.gather(cosines(views[0], views[1]), how.shares)
        points = views.flatten(0, 1)
        if how.shares is not None:
            how = how._replace(shares=Shares(tuple(2 * size for size in how.shares.sizes), how.shares.rank))
        spread = less_mean_logsumexp(0.0, points, 1 / temperature, exclude_diagonal=True, how=how)
        return -(spread + positives.mean() / temperature)
