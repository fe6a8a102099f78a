"""A linear classifier that learns along on the encoder's features, to see what is in them while they change."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from entrec.training.assemble import adamw


class OnlineProbe(nn.Module):
    """Logistic regression on normalised features, by its own optimiser; no gradient reaches the encoder.

    The normalisation has no parameters to learn, and its running statistics follow the encoder's drift.
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.normalise = nn.BatchNorm1d(width, affine=False)
        self.classify = nn.Linear(width, classes)

    def forward(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and its accuracy before the step that learns from it; rows without a label do not count."""
        logits = self.classify(self.normalise(features.detach().float()))
        known = (labels >= 0).sum().clamp(min=1)
        loss = cross_entropy(logits, labels, ignore_index=-1, reduction="sum") / known
        right = (logits.argmax(dim=-1) == labels).sum() / known  # no class is -1
        return loss, right.detach()

    def optimizer(self, on_gpu: bool = False) -> torch.optim.Optimizer:
        """What trains it."""
        return adamw(self.parameters(), 3e-3, on_gpu, weight_decay=0.0)
