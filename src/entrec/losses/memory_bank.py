"""InfoNCE against a memory bank: the loss of instance discrimination and of MoCo."""

import torch
from torch import Tensor

from entrec import checks
from entrec.losses.contrastive import Contrastive
from entrec.pairwise import Backend, Precision, ranks
from entrec.pairwise.logsumexp import logsumexp
from entrec.pairwise.rows import cosines


class MemoryBankLoss(Contrastive):
    r"""Each query finds its key among the rows of a bank (instance discrimination, Wu et al., 2018; MoCo, He et al., 2020).

    .. math:: \frac1k \sum_i \Big(\log \sum_j e^{\cos(q_i, n_j)/\tau} - \cos(q_i, k_i)/\tau\Big)

    The sum runs over the bank, and over the key as well unless it is in the bank. Only the queries have a gradient: keys and
    bank come from the past or from a teacher. The bank is yours to keep, and is the same on every rank if the ranks gather.

    Args:
        temperature: tau, positive; an `nn.Parameter` is learnt.
        gather_distributed: the mean over all ranks' queries instead of this rank's own (see `entrec.losses`).
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> loss, z = MemoryBankLoss(temperature=0.5), torch.eye(4)
        >>> loss(z[:2], z[:2], bank=z[2:])  # a queue of negatives: log(1 + 2 exp(-2))
        tensor(0.2395)
        >>> loss(z[:2], z[:2], bank=z, in_bank=True)  # a bank of all instances: log(1 + 3 exp(-2))
        tensor(0.3408)
    """

    def __init__(
        self,
        temperature: float | Tensor = 0.07,
        gather_distributed: bool = False,
        *,
        precision: Precision = "fast",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__(temperature, gather_distributed, precision=precision, backend=backend, validate=validate)

    def forward(self, queries: Tensor, keys: Tensor, bank: Tensor, *, in_bank: bool = False) -> Tensor:
        """The mean loss of the queries.

        Args:
            queries: shape (k, d).
            keys: each query's positive, shape (k, d).
            bank: what it is told from, shape (m, d).
            in_bank: the keys are rows of the bank, so that its rows alone are the alternatives.
        """
        named = {"queries": queries, "keys": keys.detach() if isinstance(keys, Tensor) else keys}
        views, how, temperature = self.checked(named, bank=bank)
        (query, key), negatives = views, bank.detach()
        query, negatives = checks.same_dtype(query, negatives)
        log_sums = logsumexp(query, negatives, "cosine", 1 / temperature, False, how._replace(shares=None))
        positives = cosines(query, key) / temperature
        if not in_bank:
            log_sums = torch.logaddexp(log_sums, positives)
        return ranks.gather(log_sums - positives, how.shares).mean()
