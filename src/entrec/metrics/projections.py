"""Metrics of all projections together: entropy, bounds, uniformity and rank, each one function of `entrec`."""

from typing import Any

from torch import Tensor

from entrec import checks
from entrec.estimators.bounds import er_bound, infonce_bound
from entrec.estimators.density import Density, check_density, check_values
from entrec.estimators.entropy import Estimator, kde_entropy
from entrec.estimators.geometry import effective_rank, uniformity
from entrec.metrics.reservoir import DEFAULT_CAP, ProjectionMetric


class KDEEntropy(ProjectionMetric):
    """`entrec.kde_entropy` of all projections seen, in nats; by default Joe's, leave-one-out, which measures best.

    Args:
        kernel: the density at its bandwidth.
        estimator: `"joe"` or `"plugin"`.
        leave_one_out: leave out each point's own kernel.
        max_samples: keep at most this many projections, a seeded sample of all.
        seed: of that sample.
        **kwargs: torchmetrics' own.

    Example:
        >>> import torch
        >>> from entrec import VonMisesFisher, log_sphere_area
        >>> metric = KDEEntropy(VonMisesFisher(kappa=10.0))
        >>> for batch in torch.randn(1000, 3).split(64):
        ...     metric.update(batch)
        >>> abs(float(metric.compute()) - log_sphere_area(3)) < 0.1
        True
    """

    higher_is_better = True

    def __init__(
        self,
        kernel: Density,
        estimator: Estimator = "joe",
        leave_one_out: bool = True,
        max_samples: int = DEFAULT_CAP,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_samples, seed, **kwargs)
        check_density("kernel", kernel)
        checks.choice("estimator", estimator, Estimator)
        self.kernel = kernel
        self.estimator: Estimator = estimator
        self.leave_one_out = leave_one_out

    def update(self, z: Tensor) -> None:
        """Add a batch of projections, shape (k, d)."""
        _check(self.kernel, z=z)
        self.keep(z)

    def compute(self) -> Tensor:
        """The entropy of all of them."""
        return kde_entropy(self.kept(), self.kernel, self.estimator, self.leave_one_out, precision="ieee")


class ERBoundMetric(ProjectionMetric):
    """`entrec.er_bound(...).value` of all pairs seen, in nats; its docstring says on which side it errs.

    Args:
        density: the reconstruction density.
        kernel: the kernel of the entropy; the density itself if not given.
        estimator: `"joe"` or `"plugin"`.
        leave_one_out: leave out each point's own kernel.
        max_samples: keep at most this many pairs, a seeded sample of all.
        seed: of that sample.
        **kwargs: torchmetrics' own.
    """

    higher_is_better = True

    def __init__(
        self,
        density: Density,
        kernel: Density | None = None,
        estimator: Estimator = "joe",
        leave_one_out: bool = True,
        max_samples: int = DEFAULT_CAP,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_samples, seed, **kwargs)
        check_density("density", density)
        if kernel is not None:
            check_density("kernel", kernel)
        checks.choice("estimator", estimator, Estimator)
        self.density = density
        self.kernel = kernel
        self.estimator: Estimator = estimator
        self.leave_one_out = leave_one_out

    def update(self, z1: Tensor, z2: Tensor) -> None:
        """Add a batch of pairs, shapes (k, d), row i of both from the same datum."""
        _check(self.density, z1=z1, z2=z2)
        if self.kernel is not None:
            _check(self.kernel, z2=z2)
        self.keep(z1, z2)

    def compute(self) -> Tensor:
        """The bound over all of them."""
        z1, z2 = self.kept().chunk(2, dim=-1)
        bound = er_bound(z1, z2, self.density, self.kernel, self.estimator, self.leave_one_out, precision="ieee")
        return bound.value


class InfoNCEBound(ProjectionMetric):
    """`entrec.infonce_bound` of all pairs seen, in nats, at most the logarithm of their number.

    Args:
        density: gives the score.
        max_samples: keep at most this many pairs, a seeded sample of all.
        seed: of that sample.
        **kwargs: torchmetrics' own.
    """

    higher_is_better = True

    def __init__(self, density: Density, max_samples: int = DEFAULT_CAP, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(max_samples, seed, **kwargs)
        check_density("density", density)
        self.density = density

    def update(self, z1: Tensor, z2: Tensor) -> None:
        """Add a batch of pairs, shapes (k, d), row i of both from the same datum."""
        _check(self.density, z1=z1, z2=z2)
        self.keep(z1, z2)

    def compute(self) -> Tensor:
        """The bound over all of them."""
        z1, z2 = self.kept().chunk(2, dim=-1)
        return infonce_bound(z1, z2, self.density, precision="ieee")


class Uniformity(ProjectionMetric):
    """`entrec.uniformity` of all projections seen; lower is more uniform.

    Args:
        t: scale of the potential.
        max_samples: keep at most this many projections, a seeded sample of all.
        seed: of that sample.
        **kwargs: torchmetrics' own.
    """

    higher_is_better = False

    def __init__(self, t: float = 2.0, max_samples: int = DEFAULT_CAP, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(max_samples, seed, **kwargs)
        checks.positive("t", t)
        self.t = t

    def update(self, z: Tensor) -> None:
        """Add a batch of projections, shape (k, d)."""
        _check(None, z=z)
        self.keep(z)

    def compute(self) -> Tensor:
        """The uniformity of all of them."""
        return uniformity(self.kept(), self.t, precision="ieee")


class EffectiveRank(ProjectionMetric):
    """`entrec.effective_rank` of all projections or representations seen.

    Args:
        max_samples: keep at most this many rows, a seeded sample of all.
        seed: of that sample.
        **kwargs: torchmetrics' own.
    """

    higher_is_better = True

    def update(self, z: Tensor) -> None:
        """Add a batch of projections, shape (k, d)."""
        checks.batch("z", z)
        values = checks.ValueChecks()
        values.finite("z", z)
        values.raise_or_flag()
        self.keep(z)

    def compute(self) -> Tensor:
        """The effective rank of all of them."""
        return effective_rank(self.kept())


def _check(density: Density | None, **points: Tensor) -> None:
    """What each batch must be, so that a bad one is refused when it comes and not when the value is asked for."""
    (first, a), *others = points.items()
    checks.batch(first, a)
    for name, b in others:
        checks.batch(name, b)
        checks.alike(first, a, name, b)
    values = checks.ValueChecks()
    if density is None:
        for name, z in points.items():
            values.directions(name, z)
    else:
        check_values(values, density, **points)
    values.raise_or_flag()
