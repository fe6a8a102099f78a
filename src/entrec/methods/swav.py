"""SwAV (Caron et al., 2020): each view predicts the other's balanced assignment to prototypes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entrec.branches.heads import Prototypes, mlp
from entrec.branches.queue import Queue
from entrec.branches.sinkhorn import sinkhorn, total_over_ranks
from entrec.estimators import ERObjective, discrete_er_objective
from entrec.losses import SwAVLoss
from entrec.methods.step import Progress, Seen, Step, Views, each, together
from entrec.pairwise import ranks

RECIPE = "swav"


@dataclass(frozen=True)
class Options:
    """SwAV's: temperature 0.1, Sinkhorn's epsilon 0.05 and 3 rounds, 3000 prototypes in 128 dimensions, 6 small crops.

    Args:
        queue: projections of earlier batches that share the balance, for batches smaller than the number of prototypes.
        frozen: part of the run, from its beginning, in which the prototypes stay where they are.
        shared_statistics: BatchNorm sees the rows of all views of a size together, as SwAV has it; otherwise each view's alone.
    """

    temperature: float = 0.1
    weight: float = 1.0
    views: int = 2
    small_crops: int = 6
    prototypes: int = 3000
    epsilon: float = 0.05
    iterations: int = 3
    queue: int = 0
    frozen: float = 0.005
    hidden: int = 2048
    dim: int = 128
    shared_statistics: bool = True


def defaults(width: int, small: bool) -> Options:
    """For features of this width; small images come in small batches and short runs.

    So they get no small crops, as many prototypes as a small batch can balance, and few dimensions and a sharper assignment,
    since cosines of a new network with directions in many are all near zero and codes all near uniform.
    """
    if small:
        return Options(hidden=width, small_crops=0, prototypes=width // 4, dim=max(8, width // 8), epsilon=0.03)
    return Options(hidden=width)


class SwAV(nn.Module):
    """One branch, prototypes, Sinkhorn's codes as targets; with `er` the entropy of the branch's own softmax joins."""

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(width, options.hidden, options.dim)
        self.prototypes = Prototypes(options.dim, options.prototypes)
        self.queue = Queue(options.queue, options.dim) if options.queue else None
        self.options, self.with_er, self.gather = options, er, gather
        self.held = False
        self.loss = SwAVLoss(options.temperature, gather_distributed=gather, validate=False)
        self.prototypes.normalise_()

    def forward(self, views: Views) -> Step:
        """Logits of every view against the codes of the full-size ones."""
        if self.options.shared_statistics:
            features = together(self.encoder, views.images)
            z = self.projector(torch.cat(features))
        else:
            features = each(self.encoder, views.images)
            z = torch.cat(each(self.projector, features))
        logits = tuple(self.prototypes(z).chunk(len(features)))
        with torch.no_grad():
            codes = tuple(self._codes(x) for x in logits[: views.full])
        step = Step(z, features[0].detach(), logits, codes, kept=(z[: len(views.places)].detach(),))
        loss = self.measure(step).loss if self.with_er else self.loss(logits, codes)
        return step._replace(loss=loss)

    def _codes(self, logits: Tensor) -> Tensor:
        """Balanced over the batch of all ranks, and over the queue's rows where there is one."""
        scores = logits.detach()
        if self.queue is not None:
            scores = torch.cat([scores, self.prototypes(ranks.own_part(self.queue.rows))])
        codes = sinkhorn(scores, self.options.epsilon, self.options.iterations, total=total_over_ranks)
        return codes[: len(logits)]

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The logits of the prototypes."""
        return Seen(self.prototypes(self.projector(self.encoder(images))) / self.options.temperature, codes=True)

    def measure(self, step: Step) -> ERObjective:
        """Entropy of the branch's own softmax and reconstruction of the codes, in nats."""
        o = self.options
        return discrete_er_objective(
            step.student, o.temperature, o.weight, targets=step.targets, gather_distributed=self.gather, validate=False
        )

    def prepare(self, progress: Progress) -> bool:
        """Whether the prototypes stay where they are in this step."""
        self.held = progress.part < self.options.frozen
        return self.held

    def update(self, step: Step) -> None:
        """Prototypes back to the sphere; the first view's projections join the queue."""
        self.prototypes.normalise_()
        if self.queue is not None:
            self.queue.enqueue(step.kept[0])

    def before_step(self) -> None:
        """Hold the prototypes still at the beginning."""
        if self.held:
            for parameter in self.prototypes.parameters():
                parameter.grad = None
