"""Running sums for metrics whose value is a mean over samples: exact over batches and ranks, and cheap.

The sum is compensated (Knuth's two-sum), so that float32 accumulates thousands of batches without drifting; float64 would
do too, but does not exist on every device that people train on.
"""

import torch
from torch import Tensor
from torchmetrics import Metric

from entrec.metrics.instance import keep_apart


def declare(metric: Metric, *shape: int) -> None:
    """Give the metric a running sum of this shape."""
    metric.add_state("total", torch.zeros(shape), dist_reduce_fx="sum")
    metric.add_state("carry", torch.zeros(shape), dist_reduce_fx="sum")
    metric.add_state("count", torch.tensor(0), dist_reduce_fx="sum")
    keep_apart(metric)


def add(metric: Metric, batch_mean: Tensor, samples: int) -> None:
    """Add the mean of a batch of so many samples."""
    total, batch = _tensor(metric, "total"), batch_mean.to(metric.dtype) * samples
    after = total + batch
    added = after - total
    metric.carry = _tensor(metric, "carry") + ((total - (after - added)) + (batch - added))
    metric.total = after
    metric.count = _tensor(metric, "count") + samples


def mean(metric: Metric) -> Tensor:
    """The mean of everything added so far."""
    count = _tensor(metric, "count")
    if int(count) == 0:
        raise ValueError(f"{type(metric).__name__} has seen no samples: call update first")
    return (_tensor(metric, "total") + _tensor(metric, "carry")) / count


def _tensor(metric: Metric, name: str) -> Tensor:
    state = getattr(metric, name)
    assert isinstance(state, Tensor)
    return state
