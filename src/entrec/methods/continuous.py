"""ER on continuous projections, as every method on the sphere uses it: in the loss, and to measure.

What is measured is Joe's entropy without each point's own kernel: the plug-in is an objective and no estimate, and with its own
kernel no entropy rises more than the logarithm of the batch above its floor.
"""

from dataclasses import dataclass

from torch import Tensor

from entrec.estimators import ERObjective, VonMisesFisher, er_objective, kde_entropy, reconstruction
from entrec.estimators.entropy import Estimator
from entrec.methods.step import Step


@dataclass(frozen=True)
class ContinuousER:
    """The ER objective on the sphere with one von Mises-Fisher density for reconstruction and kernel.

    Args:
        kappa: its concentration; the paper takes the inverse of the method's temperature.
        estimator: of the entropy.
        weight: lambda, of the reconstruction.
        gather: all ranks' rows as one batch.
    """

    kappa: float
    estimator: Estimator
    weight: float
    gather: bool

    def pairs(self, step: Step, measured: bool = False) -> ERObjective:
        """Over all pairs of views, a teacher's or a predictor's included."""
        return er_objective(
            step.student,
            VonMisesFisher(self.kappa),
            estimator="joe" if measured else self.estimator,
            weight=self.weight,
            leave_one_out=measured,
            targets=step.targets or None,
            predictions=step.sources or None,
            gather_distributed=self.gather,
            validate=False,
        )

    def one_way(self, query: Tensor, target: Tensor, measured: bool = False) -> ERObjective:
        """The queries' entropy, and the reconstruction of one target from each."""
        density = VonMisesFisher(self.kappa)
        estimator = "joe" if measured else self.estimator
        entropy = kde_entropy(query, density, estimator, measured, gather_distributed=self.gather, validate=False)
        # A mean over rows: over equal ranks, DDP's averaging makes it the whole batch's.
        rec = reconstruction(target.detach(), query, density, validate=False)
        return ERObjective(-(entropy + self.weight * rec), entropy, rec)
