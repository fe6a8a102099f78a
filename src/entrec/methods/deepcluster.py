"""DeepCluster (Caron et al., 2018): clusters of the whole data set are the classes that a predictor learns to tell."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from entrec.branches.heads import Prototypes, mlp
from entrec.branches.kmeans import kmeans, optimal_transport_labels
from entrec.estimators import ERObjective, discrete_er_objective
from entrec.losses import DeepClusterLoss
from entrec.methods.step import Seen, Step, Views, together
from entrec.pairwise import ranks

RECIPE = "simclr"


@dataclass(frozen=True)
class Options:
    """DeepCluster's in the form of its second version: spherical k-means, a predictor that begins at the centres.

    Args:
        clusters: about ten times the number of classes one expects, as the paper found.
        assignment: `"kmeans"`, or `"transport"` for balanced assignments (Asano et al., 2020).
        uniform: draw batches uniformly over clusters, which keeps their entropy high.
    """

    temperature: float = 0.1
    weight: float = 1.0
    views: int = 2
    clusters: int = 3000
    assignment: Literal["kmeans", "transport"] = "kmeans"
    iterations: int = 20
    uniform: bool = True
    hidden: int = 2048
    dim: int = 128


def defaults(width: int, small: bool) -> Options:
    """For features of this width; small images: 100 clusters."""
    return Options(hidden=width, clusters=100) if small else Options(hidden=width)


class DeepCluster(nn.Module):
    """One branch, cluster labels from the epoch's start, a predictor; with `er` the entropy of its own softmax joins."""

    labels: Tensor
    weights: Tensor

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool, images: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(width, options.hidden, options.dim)
        self.predictor = Prototypes(options.dim, options.clusters)
        self.options, self.with_er, self.gather = options, er, gather
        self.loss = DeepClusterLoss(options.temperature, gather_distributed=gather, validate=False)
        self.register_buffer("labels", torch.zeros(images, dtype=torch.int64))
        self.register_buffer("weights", torch.ones(images))  # how often each image is drawn

    def forward(self, views: Views) -> Step:
        """Every view predicts the image's cluster."""
        features = together(self.encoder, views.images)
        logits = tuple(self.predictor(self.projector(torch.cat(features))).chunk(len(features)))
        labels = self.labels[views.places]
        codes = one_hot(labels, self.options.clusters).to(torch.float32)
        step = Step(logits[0], features[0].detach(), logits, (codes,) * len(logits))
        return step._replace(loss=self.measure(step).loss if self.with_er else self.loss(logits, labels))

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The predictor's logits of the clusters."""
        return Seen(self.predictor(self.projector(self.encoder(images))) / self.options.temperature, codes=True)

    def measure(self, step: Step) -> ERObjective:
        """Entropy of the predictor's own softmax and reconstruction of the clusters, in nats."""
        o = self.options
        return discrete_er_objective(
            step.student, o.temperature, o.weight, targets=step.targets, gather_distributed=self.gather, validate=False
        )

    @torch.no_grad()
    def begin_epoch(
        self, project: Callable[[nn.Module], tuple[Tensor, Tensor]], generator: torch.Generator
    ) -> list[nn.Parameter]:
        """Cluster the whole data set anew and set the predictor to the centres.

        Args:
            project: gives a module's outputs of all images that can be read, from one plain view each, and their places.
            generator: seeds the clustering, the same on every rank.

        Returns:
            The parameters that were replaced, whose momentum is of no use any more.
        """
        outputs, places = project(nn.Sequential(self.encoder, self.projector))
        z, places = normalize(outputs, dim=-1), places.to(self.labels.device)
        found = kmeans(z, self.options.clusters, self.options.iterations, generator)
        labels = found.labels
        if self.options.assignment == "transport":
            labels = optimal_transport_labels(z @ found.centres.mT)
        self.labels[places] = labels
        sizes = torch.bincount(labels, minlength=self.options.clusters)
        self.weights.zero_()  # what cannot be read is not drawn
        self.weights[places] = 1 / sizes[labels].to(torch.float32) if self.options.uniform else 1.0
        self.predictor.weight.copy_(found.centres)
        # Each process's BatchNorm has statistics of its own on CPUs, and so would its clusters.
        ranks.as_on_the_first(self.labels, self.weights, self.predictor.weight.data)
        return [self.predictor.weight]
