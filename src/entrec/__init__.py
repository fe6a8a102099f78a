"""Entropy and reconstruction: multi-view self-supervised learning through one bound on mutual information.

I(Z1; Z2) >= H(Z2) + E[log q(Z2 | Z1)], in nats. `entrec.losses` trains with it, `entrec.metrics` measures it, and the
functions here are its parts.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from entrec import losses
from entrec.checks import raise_if_invalid
from entrec.estimators import (
    Density,
    ERBound,
    ERObjective,
    Gaussian,
    GeneralizedNormal,
    Laplace,
    VonMisesFisher,
    alignment,
    discrete_entropy,
    discrete_er_objective,
    discrete_reconstruction,
    effective_rank,
    er_bound,
    er_objective,
    infonce_bound,
    kde_entropy,
    kde_log_density,
    log_sphere_area,
    reconstruction,
    uniformity,
)
from entrec.pairwise import pairwise_logsumexp

if TYPE_CHECKING:
    from entrec.lens.callback import LensCallback
    from entrec.training.run import Run
    from entrec.training.runs import embed, evaluate, export
    from entrec.training.train import train

try:
    __version__ = version("entrec")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "Density",
    "ERBound",
    "ERObjective",
    "Gaussian",
    "GeneralizedNormal",
    "Laplace",
    "LensCallback",
    "Run",
    "VonMisesFisher",
    "__version__",
    "alignment",
    "discrete_entropy",
    "discrete_er_objective",
    "discrete_reconstruction",
    "effective_rank",
    "embed",
    "er_bound",
    "er_objective",
    "evaluate",
    "export",
    "infonce_bound",
    "kde_entropy",
    "kde_log_density",
    "log_sphere_area",
    "losses",
    "pairwise_logsumexp",
    "raise_if_invalid",
    "reconstruction",
    "train",
    "uniformity",
]

# Training brings Lightning and torchvision along, seconds that someone who wants a loss need not wait for.
_LATER = {
    "LensCallback": "entrec.lens.callback",
    "Run": "entrec.training.run",
    "train": "entrec.training.train",
    "evaluate": "entrec.training.runs",
    "embed": "entrec.training.runs",
    "export": "entrec.training.runs",
}


def __getattr__(name: str) -> Any:
    """Import the trainer's names when they are first asked for."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'entrec' has no attribute {name!r}")
