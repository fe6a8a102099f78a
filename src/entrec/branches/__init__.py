"""From views to projections: backbones and heads, and what is kept beside them from step to step.

State is buffers, so that checkpoints carry it, and changes only in calls that say so: `Teacher.update`, `Queue.enqueue`,
`Bank.replace`, `Centre.update`, `Prototypes.normalise_`. Where several processes run, each call leaves all ranks in one state.
"""

from entrec.branches.backbones import Backbone, build_backbone
from entrec.branches.centring import Centre, teacher_probabilities
from entrec.branches.ema import Teacher, cosine_ema
from entrec.branches.heads import DINOHead, DINOOutput, Prototypes, mlp
from entrec.branches.kmeans import Clusters, kmeans, optimal_transport_labels
from entrec.branches.queue import Bank, Queue
from entrec.branches.sinkhorn import sinkhorn, total_over_ranks
from entrec.branches.tiny import Tiny

__all__ = [
    "Backbone",
    "Bank",
    "Centre",
    "Clusters",
    "DINOHead",
    "DINOOutput",
    "Prototypes",
    "Queue",
    "Teacher",
    "Tiny",
    "build_backbone",
    "cosine_ema",
    "kmeans",
    "mlp",
    "optimal_transport_labels",
    "sinkhorn",
    "teacher_probabilities",
    "total_over_ranks",
]
