"""Training: `entrec.train`, and its pieces for other people's loops."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from entrec.training.cached import cached_backward
from entrec.training.lars import LARS
from entrec.training.parameters import parameter_groups
from entrec.training.schedule import scaled_rate, warmup_cosine

if TYPE_CHECKING:
    from entrec.training.module import Pretraining
    from entrec.training.settings import Settings

__all__ = [
    "LARS",
    "Pretraining",
    "Settings",
    "cached_backward",
    "parameter_groups",
    "scaled_rate",
    "warmup_cosine",
]

_LATER = {"Pretraining": "module", "Settings": "settings"}  # with Lightning, which takes seconds to import


def __getattr__(name: str) -> Any:
    """Import what needs Lightning when it is first asked for."""
    if name in _LATER:
        return getattr(import_module(f"entrec.training.{_LATER[name]}"), name)
    raise AttributeError(f"module 'entrec.training' has no attribute {name!r}")
