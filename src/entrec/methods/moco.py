"""MoCo v2 (Chen et al., 2020): queries find the key of their other view among a queue of earlier keys."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from entrec import checks
from entrec.branches.ema import Teacher
from entrec.branches.heads import mlp
from entrec.branches.queue import Queue
from entrec.branches.split_norm import interleave_splits, split_norms
from entrec.estimators import ERObjective
from entrec.estimators.entropy import Estimator
from entrec.losses import MemoryBankLoss
from entrec.methods.continuous import ContinuousER
from entrec.methods.step import Seen, Step, Views, each

RECIPE = "moco"


@dataclass(frozen=True)
class Options:
    """MoCo v2's: temperature 0.2, EMA 0.999, a queue of 65,536 keys, a head as wide as the features.

    Args:
        ema: how slowly the key branch follows; None: it is the query branch itself, without gradient.
        queue: keys of earlier batches that a query is told from.
        symmetric: both views ask and both answer, and the loss is the mean of both ways.
        norm: BatchNorm in the head.
        splits: parts of a batch whose statistics the encoder's BatchNorm keeps apart, the keys' other parts than the queries',
            which then cannot know their key by the statistics they share: shuffled BatchNorm (He et al., 2020, Section 3.3).
    """

    temperature: float = 0.2
    kappa: float = 10.0
    estimator: Estimator = "plugin"
    weight: float = 1.0
    ema: float | None = 0.999
    queue: int = 65536
    symmetric: bool = False
    hidden: int = 2048
    dim: int = 128
    norm: bool = True
    splits: int = 1


def defaults(width: int, small: bool) -> Options:
    """For features of this width; small images come in small sets, whose runs are short: EMA 0.99 and 4096 keys."""
    return Options(hidden=width, ema=0.99, queue=4096) if small else Options(hidden=width)


class MoCo(nn.Module):
    """Query and key branch; with `er`: the queries' entropy, and the reconstruction of the keys, without a queue."""

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool) -> None:
        super().__init__()
        split_norms(encoder, options.splits)
        self.encoder = encoder
        self.projector = mlp(width, options.hidden, options.dim, norm=options.norm)
        self.teacher = None if options.ema is None else Teacher(nn.Sequential(self.encoder, self.projector))
        if self.teacher is not None:
            interleave_splits(self.teacher)
        self.ema, self.symmetric, self.with_er = options.ema, options.symmetric, er
        if not er:
            checks.whole("queue", options.queue, 1)
        self.queue = None if er else Queue(options.queue, options.dim)
        self.er = ContinuousER(options.kappa, options.estimator, options.weight, gather)
        self.loss = MemoryBankLoss(options.temperature, validate=False)

    def forward(self, views: Views) -> Step:
        """The first view asks, the second answers; both do both where the loss is symmetric."""
        one, other = views.images[:2]
        features = each(self.encoder, (one, other) if self.symmetric else (one,))
        queries = each(self.projector, features)
        with torch.no_grad():
            keys = each(self._key, (one, other) if self.symmetric else (other,))
        step = Step(queries[0], features[0].detach(), queries, targets=keys)
        return step._replace(loss=self._objective(step).loss if self.queue is None else self._told_apart(step, self.queue.rows))

    def _key(self, images: Tensor) -> Tensor:
        found: Tensor = self.projector(self.encoder(images)) if self.teacher is None else self.teacher(images)
        return found

    def _told_apart(self, step: Step, bank: Tensor) -> Tensor:
        """The loss against the queue: each view's queries find the other view's keys."""
        pairs = zip(step.student, reversed(step.targets), strict=True)
        return torch.stack([self.loss(query, key, bank) for query, key in pairs]).mean()

    def _objective(self, step: Step, measured: bool = False) -> ERObjective:
        if self.symmetric:
            return self.er.pairs(step, measured)
        return self.er.one_way(step.student[0], step.targets[0], measured)

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The student's projections of images."""
        return Seen(self.projector(self.encoder(images)))

    def measure(self, step: Step) -> ERObjective:
        """Entropy of the queries and reconstruction of the keys, in nats."""
        return self._objective(step, measured=True)

    def update(self, step: Step) -> None:
        """The key branch follows; the keys join the queue, after the loss that must not meet them."""
        if self.teacher is not None and self.ema is not None:
            self.teacher.update(nn.Sequential(self.encoder, self.projector), self.ema)
        if self.queue is not None:
            self.queue.enqueue(normalize(torch.cat(step.targets), dim=-1))
