"""Steps of training."""

from entrec.training.cached import cached_backward

__all__ = ["cached_backward"]
