"""MoCo v2 (Chen et al., 2020): queries find the key of their other view among a queue of earlier keys."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from entrec.branches.ema import Teacher
from entrec.branches.heads import mlp
from entrec.branches.queue import Queue
from entrec.estimators import ERObjective
from entrec.estimators.entropy import Estimator
from entrec.losses import MemoryBankLoss
from entrec.methods.continuous import ContinuousER
from entrec.methods.step import Seen, Step, Views

RECIPE = "moco"


@dataclass(frozen=True)
class Options:
    """MoCo v2's: temperature 0.2, EMA 0.999, a queue of 65,536 keys, a head as wide as the features.

    Args:
        ema: how slowly the key branch follows; None: it is the query branch itself, without gradient.
        queue: keys of earlier batches that a query is told from.
    """

    temperature: float = 0.2
    kappa: float = 10.0
    estimator: Estimator = "plugin"
    weight: float = 1.0
    ema: float | None = 0.999
    queue: int = 65536
    hidden: int = 2048
    dim: int = 128


def defaults(width: int, small: bool) -> Options:
    """For features of this width; small images come in small sets, whose runs are short: EMA 0.99 and 4096 keys."""
    return Options(hidden=width, ema=0.99, queue=4096) if small else Options(hidden=width)


class MoCo(nn.Module):
    """Query and key branch; with `er`: the queries' entropy, and the reconstruction of the keys, without a queue."""

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(width, options.hidden, options.dim)
        self.teacher = None if options.ema is None else Teacher(nn.Sequential(self.encoder, self.projector))
        self.ema = options.ema
        self.queue = None if er else Queue(options.queue, options.dim)
        self.er = ContinuousER(options.kappa, options.estimator, options.weight, gather)
        self.loss = MemoryBankLoss(options.temperature, validate=False)

    def forward(self, views: Views) -> Step:
        """The first view asks, the second answers."""
        features = self.encoder(views.images[0])
        query = self.projector(features)
        with torch.no_grad():
            other = views.images[1]
            key = self.projector(self.encoder(other)) if self.teacher is None else self.teacher(other)
        loss = self.er.one_way(query, key).loss if self.queue is None else self.loss(query, key, self.queue.rows)
        return Step(loss, features.detach(), (query,), targets=(key,))

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The student's projections of images."""
        return Seen(self.projector(self.encoder(images)))

    def measure(self, step: Step) -> ERObjective:
        """Entropy of the queries and reconstruction of the keys, in nats."""
        return self.er.one_way(step.student[0], step.targets[0], measured=True)

    def update(self, step: Step) -> None:
        """The key branch follows; the keys join the queue, after the loss that must not meet them."""
        if self.teacher is not None and self.ema is not None:
            self.teacher.update(nn.Sequential(self.encoder, self.projector), self.ema)
        if self.queue is not None:
            self.queue.enqueue(normalize(step.targets[0], dim=-1))
