"""The one expensive operation of the library: log sum_j exp s(a_i, b_j) over all pairs."""

from entrec.pairwise.backends import Backend, Precision
from entrec.pairwise.logsumexp import AS_USUAL, How, pairwise_logsumexp
from entrec.pairwise.similarity import Similarity

__all__ = ["AS_USUAL", "Backend", "How", "Precision", "Similarity", "pairwise_logsumexp"]
