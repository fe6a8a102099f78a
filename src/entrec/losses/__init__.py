"""One module per objective; each holds its settings and calls one function of `entrec.estimators`."""

from entrec.losses.discrete_er import DiscreteERLoss
from entrec.losses.er import ERLoss

__all__ = ["DiscreteERLoss", "ERLoss"]
