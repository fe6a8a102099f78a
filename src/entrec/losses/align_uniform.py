"""Alignment and uniformity as a loss."""

from torch import Tensor, nn

from entrec import checks
from entrec.estimators.entropy import checked_how
from entrec.estimators.geometry import distances_on_sphere, log_mean_potential
from entrec.estimators.objective import check_weight
from entrec.losses.views import directions
from entrec.pairwise import Backend, How, Precision, ranks


class AlignUniformLoss(nn.Module):
    r"""Weighted `entrec.alignment` of the two views plus the mean of their `entrec.uniformity` (Wang and Isola, 2020).

    .. math:: w_a \frac1k \sum_i \|z_{1,i} - z_{2,i}\|^\alpha
        + w_u \frac12 \sum_v \log \operatorname*{mean}_{i \ne j} e^{-t \|z_{v,i} - z_{v,j}\|^2}

    Args:
        alpha: exponent of the alignment's distance, positive.
        t: scale of the uniformity's potential, positive.
        align_weight: w_a, not negative.
        uniform_weight: w_u, not negative.
        gather_distributed: the loss of all ranks' batches together instead of this rank's own (see `entrec.losses`).
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> AlignUniformLoss()(z, z)  # aligned, and all pairs at a squared distance of 2: -2t
        tensor(-4.)
    """

    def __init__(
        self,
        alpha: float = 2.0,
        t: float = 2.0,
        align_weight: float = 1.0,
        uniform_weight: float = 1.0,
        gather_distributed: bool = False,
        *,
        precision: Precision = "fast",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__()
        checks.positive("alpha", alpha)
        checks.positive("t", t)
        check_weight(align_weight, "align_weight")
        check_weight(uniform_weight, "uniform_weight")
        self.alpha = alpha
        self.t = t
        self.align_weight = align_weight
        self.uniform_weight = uniform_weight
        self.gather_distributed = gather_distributed
        self.precision, self.backend, _ = checked_how(precision, backend)
        self.validate = validate

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The loss of two views' projections, each (k, d) with k >= 2, row i of both from the same datum."""
        how = How(self.precision, self.backend)
        views, how = directions({"z1": z1, "z2": z2}, how, self.gather_distributed, self.validate, least_rows=2)
        apart = ranks.gather(distances_on_sphere(views[0], views[1], self.alpha), how.shares)
        return self.align_weight * apart.mean() + self.uniform_weight * log_mean_potential(views, self.t, how).mean()

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return (
            f"alpha={self.alpha}, t={self.t}, align_weight={self.align_weight}, uniform_weight={self.uniform_weight}, "
            f"gather_distributed={self.gather_distributed}"
        )
