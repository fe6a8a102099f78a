"""IR, instance discrimination (Wu et al., 2018): each image finds its own entry in a memory bank of all images."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entrec.branches.heads import mlp
from entrec.branches.queue import Bank
from entrec.estimators import ERObjective
from entrec.estimators.entropy import Estimator
from entrec.losses import MemoryBankLoss
from entrec.methods.continuous import ContinuousER
from entrec.methods.step import Seen, Step, Views, each

RECIPE = "moco"  # Wu et al. crop, jitter, grey and flip: MoCo's recipe, which came from theirs


@dataclass(frozen=True)
class Options:
    """Wu et al.'s: temperature 0.07, momentum 0.5, 4096 negatives, 128 dimensions.

    Args:
        momentum: of the bank: an entry becomes the direction of momentum x old + (1 - momentum) x new.
        negatives: entries that an image is told from at each step; all of them where the data set has no more.
    """

    temperature: float = 0.07
    kappa: float = 10.0
    estimator: Estimator = "plugin"
    weight: float = 1.0
    momentum: float = 0.5
    negatives: int = 4096
    hidden: int = 2048
    dim: int = 128


def defaults(width: int, small: bool) -> Options:
    """For features of this width; at small sizes the softer temperature 0.1, as for SimCLR."""
    return Options(hidden=width, temperature=0.1 if small else 0.07, kappa=10.0 if small else 1 / 0.07)


class IR(nn.Module):
    """One branch, one view, a bank; with `er`: the batch's entropy, and the reconstruction of the bank's entry."""

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool, images: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(width, options.hidden, options.dim)
        self.bank = Bank(images, options.dim)
        self.momentum, self.negatives = options.momentum, options.negatives
        self.er = ContinuousER(options.kappa, options.estimator, options.weight, gather)
        self.with_er = er
        self.loss = None if er else MemoryBankLoss(options.temperature, validate=False)

    def forward(self, views: Views) -> Step:
        """Compare the only view's projections with the bank."""
        (features,) = each(self.encoder, views.images[:1])
        z = self.projector(features)
        own = self.bank.entries[views.places]
        if self.loss is None:
            loss = self.er.one_way(z, own).loss
        elif len(self.bank.entries) <= self.negatives:
            loss = self.loss(z, own, self.bank.entries, in_bank=True)
        else:
            loss = self.loss(z, own, self._drawn())
        return Step(loss, features.detach(), (z,), targets=(own,), kept=(z.detach(), views.places))

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The student's projections of images."""
        return Seen(self.projector(self.encoder(images)))

    def measure(self, step: Step) -> ERObjective:
        """Entropy of the batch and reconstruction of its entries, in nats."""
        return self.er.one_way(step.student[0], step.targets[0], measured=True)

    def update(self, step: Step) -> None:
        """Move the batch's entries towards their new projections."""
        z, index = step.kept
        self.bank.replace(index, z, self.momentum, validate=False)

    def _drawn(self) -> Tensor:
        # With replacement, and an image's own entry may be among them: one in many thousands, as in the reference.
        entries = self.bank.entries
        return entries[torch.randint(len(entries), (self.negatives,), device=entries.device)]
