"""The experiments by name."""

from entrec.paper.grid import clustering, dynamics, estimators, extended, mi_relation, resilience, weights
from entrec.paper.grid.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "resilience": resilience.EXPERIMENT,
    "extended": extended.EXPERIMENT,
    "estimators": estimators.EXPERIMENT,
    "dynamics": dynamics.EXPERIMENT,
    "clustering": clustering.EXPERIMENT,
    "weights": weights.EXPERIMENT,
    "mi-relation": mi_relation.EXPERIMENT,
}
