"""InfoNCE between views: CPC's and CMC's loss."""

from torch import Tensor

from entrec.estimators.objective import pairs_of_views
from entrec.losses.contrastive import Contrastive
from entrec.pairwise import ranks
from entrec.pairwise.logsumexp import logsumexp
from entrec.pairwise.rows import directions


class InfoNCELoss(Contrastive):
    r"""Each projection of one view finds its datum among the k projections of another (van den Oord et al., 2018).

    .. math:: \operatorname*{mean}_{s \ne t} \frac1k \sum_i
        \Big(\log \sum_j e^{\cos(z_{s,i}, z_{t,j})/\tau} - \cos(z_{s,i}, z_{t,i})/\tau\Big)

    The mean runs over all ordered pairs of views: both directions for two (CMC, CLIP). For one direction, log k minus it is
    `entrec.infonce_bound(z_s, z_t, VonMisesFisher(1 / tau))`.

    Args:
        temperature: tau, positive; an `nn.Parameter` is learnt.
        gather_distributed: the loss of all ranks' batches together instead of this rank's own (see `entrec.losses`).
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> InfoNCELoss(temperature=0.1)(z, z)  # log(1 + 3 exp(-10))
        tensor(0.0001)
    """

    def forward(self, z1: Tensor, z2: Tensor, *more: Tensor) -> Tensor:
        """The loss of two or more views' projections, each (k, d), row i of all from the same datum."""
        views, how, temperature = self.checked({f"z{i}": z for i, z in enumerate((z1, z2, *more), start=1)})
        views = directions(views)
        source, target = pairs_of_views(views, views)
        log_sums = logsumexp(source, target, "cosine", 1 / temperature, exclude_diagonal=False, how=how, units=True)
        positives = ranks.gather((source * target).sum(dim=-1), how.shares)
        return log_sums.mean() - positives.mean() / temperature
