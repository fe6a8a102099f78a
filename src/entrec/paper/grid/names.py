"""The experiments by name."""

from entrec.paper.grid import clustering, dynamics, estimators, extended, mi_relation, resilience, weights
from entrec.paper.grid.experiment import Experiment, Wanted
from entrec.paper.grid.presets import Preset

EXPERIMENTS: dict[str, Experiment] = {
    "resilience": resilience.EXPERIMENT,
    "extended": extended.EXPERIMENT,
    "estimators": estimators.EXPERIMENT,
    "dynamics": dynamics.EXPERIMENT,
    "clustering": clustering.EXPERIMENT,
    "weights": weights.EXPERIMENT,
    "mi-relation": mi_relation.EXPERIMENT,
}
ALL = "all"


def names_of(name: str) -> tuple[str, ...]:
    """The experiments that a name stands for."""
    return tuple(EXPERIMENTS) if name == ALL else (name,)


def wanted(name: str, preset: Preset) -> Wanted:
    """The settings of all experiments that a name stands for; those that carry a claim of any come first."""
    parts = [EXPERIMENTS[x].wanted(preset) for x in names_of(name)]
    return Wanted([x for part in parts for x in part.claims], [x for part in parts for x in part.further])
