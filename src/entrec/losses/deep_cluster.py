"""DeepCluster's loss: each view predicts the cluster of its datum."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from entrec import checks
from entrec.estimators.entropy import checked_across_ranks
from entrec.losses.pairs import Views, first
from entrec.pairwise import AS_USUAL, ranks


class DeepClusterLoss(nn.Module):
    r"""Cross entropy of the clusters with those predicted from each view (DeepCluster, Caron et al., 2018 and 2020), in nats.

    .. math:: -\operatorname*{mean}_v \frac1k \sum_i \log \mathrm{softmax}(\ell_{v,i} / \tau)_{y_i}

    The labels y come from k-means or optimal transport on features that were computed earlier (`entrec.branches.kmeans`), so
    they are constants here. A temperature of 1 is DeepCluster's, 0.1 that of DeepCluster-v2.

    Args:
        temperature: tau, which divides the logits, positive.
        gather_distributed: the mean over all ranks' rows instead of this rank's own (see `entrec.losses`).
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> DeepClusterLoss()(torch.zeros(3, 4), torch.tensor([0, 1, 3]))  # log 4
        tensor(1.3863)
    """

    def __init__(self, temperature: float = 0.1, gather_distributed: bool = False, *, validate: bool = True) -> None:
        super().__init__()
        checks.positive("temperature", temperature)
        self.temperature = temperature
        self.gather_distributed = gather_distributed
        self.validate = validate

    def forward(self, logits: Views, labels: Tensor) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: of the w clusters, one tensor (k, w), or one for each of V views.
            labels: the datum's cluster, int64 of shape (k,), from 0 to w - 1.
        """
        views = (logits,) if isinstance(logits, Tensor) and logits.ndim == 2 else logits

        def check() -> tuple[Tensor, ...]:
            _check_shapes(views, labels)
            values = checks.ValueChecks(self.validate)
            for i, x in enumerate(views):
                values.finite(f"logits[{i}]", x)
            _check_range(labels, views[0].shape[1], values, self.validate)
            values.raise_or_flag()
            found = checks.same_dtype(*views)
            return found[0].expand(len(found), -1, -1), *found  # the first tells the other ranks how many views there are

        (_, *found), how = checked_across_ranks(check, AS_USUAL, first(views), self.gather_distributed)
        within = labels.clamp(0, found[0].shape[1] - 1)  # unvalidated labels are flagged, and must not end the device's work
        per_view = [functional.cross_entropy(x / self.temperature, within, reduction="none") for x in found]
        return ranks.gather(torch.stack(per_view), how.shares).mean()

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return f"temperature={self.temperature}, gather_distributed={self.gather_distributed}"


def _check_shapes(views: Views, labels: Tensor) -> None:
    if not isinstance(views, Sequence | Tensor):
        raise TypeError(f"logits must be a tensor, or a sequence of tensors, one per view, got {type(views).__name__}")
    if not len(views):
        raise ValueError("logits must be at least one tensor, got none")
    for i, x in enumerate(views):
        checks.batch(f"logits[{i}]", x)
        checks.alike("logits[0]", views[0], f"logits[{i}]", x)
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        raise TypeError(
            f"labels must be an int64 tensor, got {labels.dtype if isinstance(labels, Tensor) else type(labels).__name__}"
        )
    if labels.shape != views[0].shape[:1]:
        raise ValueError(f"labels must have shape ({len(views[0])},), one per row of logits, got {tuple(labels.shape)}")
    checks.same_device("logits[0]", views[0], "labels", labels)


def _check_range(labels: Tensor, clusters: int, values: checks.ValueChecks, validate: bool) -> None:
    """Labels are clusters: said at once, or flagged as distributions over them that do not sum to one."""
    within = (labels >= 0) & (labels < clusters)
    if validate and not torch.compiler.is_compiling() and not bool(within.all()):
        raise ValueError(f"labels must be from 0 to {clusters - 1}, got {int(labels.min())} to {int(labels.max())}")
    values.distributions("one-hot labels", within.unsqueeze(1).float())
