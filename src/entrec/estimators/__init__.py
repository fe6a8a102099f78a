"""The paper's equations as pure functions: tensors in, tensors out, natural logarithms, values in nats."""

from entrec.estimators.bounds import ERBound, er_bound, infonce_bound
from entrec.estimators.densities import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher
from entrec.estimators.density import Density
from entrec.estimators.discrete import discrete_entropy, discrete_reconstruction
from entrec.estimators.entropy import kde_entropy, kde_log_density
from entrec.estimators.geometry import alignment, effective_rank, uniformity
from entrec.estimators.objective import ERObjective, discrete_er_objective, er_objective
from entrec.estimators.reconstruction import reconstruction
from entrec.estimators.sphere import log_sphere_area

__all__ = [
    "Density",
    "ERBound",
    "ERObjective",
    "Gaussian",
    "GeneralizedNormal",
    "Laplace",
    "VonMisesFisher",
    "alignment",
    "discrete_entropy",
    "discrete_er_objective",
    "discrete_reconstruction",
    "effective_rank",
    "er_bound",
    "er_objective",
    "infonce_bound",
    "kde_entropy",
    "kde_log_density",
    "log_sphere_area",
    "reconstruction",
    "uniformity",
]
