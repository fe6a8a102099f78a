"""The one expensive operation of the library: log sum_j exp s(a_i, b_j) over all pairs."""

from entrec.pairwise.dense import Similarity
from entrec.pairwise.logsumexp import pairwise_logsumexp

__all__ = ["Similarity", "pairwise_logsumexp"]
