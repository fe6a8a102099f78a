"""The library's quantities as `torchmetrics.Metric`s: the value depends neither on batch size nor on the number of ranks."""

from entrec.metrics.means import Alignment, DiscreteEntropy, DiscreteReconstruction, Reconstruction
from entrec.metrics.projections import EffectiveRank, ERBoundMetric, InfoNCEBound, KDEEntropy, Uniformity

__all__ = [
    "Alignment",
    "DiscreteEntropy",
    "DiscreteReconstruction",
    "ERBoundMetric",
    "EffectiveRank",
    "InfoNCEBound",
    "KDEEntropy",
    "Reconstruction",
    "Uniformity",
]
