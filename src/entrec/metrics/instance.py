"""Keeping metrics of the same kind but other settings apart."""

from itertools import count

import torch
from torchmetrics import Metric

_instances = count()


def keep_apart(metric: Metric) -> None:
    """Give the metric a state that no other has.

    A `torchmetrics.MetricCollection` lets metrics whose states are equal after the first batch share one state from then on.
    Two of ours can be equal by then and differ later, by their cap, their seed or their exponent.
    """
    metric.add_state("instance", torch.tensor(next(_instances)), dist_reduce_fx="max")
