"""Metrics that are means over samples, or functions of one: reconstruction, alignment and the discrete quantities."""

from typing import Any

from torch import Tensor
from torchmetrics import Metric

from entrec import checks
from entrec.estimators.density import Density, check_density
from entrec.estimators.discrete import batch_marginal, discrete_reconstruction, entropy_of_distribution
from entrec.estimators.geometry import alignment
from entrec.estimators.reconstruction import reconstruction
from entrec.metrics import totals


class Reconstruction(Metric):
    """`entrec.reconstruction` over all pairs seen, in nats.

    Args:
        density: the reconstruction density.
        **kwargs: torchmetrics' own.
    """

    full_state_update = True  # merged by plain sums, a batch at a time would lose the compensation
    is_differentiable = False
    higher_is_better = True

    def __init__(self, density: Density, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_density("density", density)
        self.density = density
        totals.declare(self)

    def update(self, z_target: Tensor, z_source: Tensor) -> None:
        """Add a batch of targets and what they are reconstructed from, shapes (k, d)."""
        totals.add(self, reconstruction(z_target, z_source, self.density), len(z_target))

    def compute(self) -> Tensor:
        """The mean log-density."""
        return totals.mean(self)


class Alignment(Metric):
    """`entrec.alignment` over all pairs seen; lower is more aligned.

    Args:
        alpha: exponent of the distance.
        **kwargs: torchmetrics' own.
    """

    full_state_update = True  # merged by plain sums, a batch at a time would lose the compensation
    is_differentiable = False
    higher_is_better = False

    def __init__(self, alpha: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checks.positive("alpha", alpha)
        self.alpha = alpha
        totals.declare(self)

    def update(self, z1: Tensor, z2: Tensor) -> None:
        """Add a batch of pairs, shapes (k, d), row i of both from the same datum."""
        totals.add(self, alignment(z1, z2, self.alpha), len(z1))

    def compute(self) -> Tensor:
        """The mean distance."""
        return totals.mean(self)


class DiscreteEntropy(Metric):
    """`entrec.discrete_entropy` of all distributions seen, in nats: that of their mean over the whole data set.

    Args:
        dim: number of classes.
        **kwargs: torchmetrics' own.
    """

    full_state_update = True  # merged by plain sums, a batch at a time would lose the compensation
    is_differentiable = False
    higher_is_better = True

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = checks.whole("dim", dim, 1)
        totals.declare(self, dim)

    def update(self, probs: Tensor) -> None:
        """Add a batch of distributions, shape (k, dim), rows summing to one."""
        marginal = batch_marginal(probs)
        if marginal.shape[-1] != self.dim:
            raise ValueError(f"probs must have shape (k, {self.dim}), got {tuple(probs.shape)}")
        totals.add(self, marginal[0], len(probs))

    def compute(self) -> Tensor:
        """The entropy of the mean distribution."""
        return entropy_of_distribution(totals.mean(self))


class DiscreteReconstruction(Metric):
    """`entrec.discrete_reconstruction` over all pairs seen, in nats.

    Args:
        **kwargs: torchmetrics' own.
    """

    full_state_update = True  # merged by plain sums, a batch at a time would lose the compensation
    is_differentiable = False
    higher_is_better = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        totals.declare(self)

    def update(self, p_target: Tensor, log_q: Tensor) -> None:
        """Add a batch of target distributions and predicted log-probabilities, shapes (k, d)."""
        totals.add(self, discrete_reconstruction(p_target, log_q), len(p_target))

    def compute(self) -> Tensor:
        """The mean expected log-probability."""
        return totals.mean(self)
