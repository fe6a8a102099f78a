"""Accuracy of a vote among nearest neighbours: nothing is trained, so it is cheap and has no rate to tune."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from entrec import checks
from entrec.evaluation.features import Features, check_pair

_ENTRIES = 2**24  # of the matrix of similarities that exists at a time: 64 MiB in float32


def knn_accuracy(
    train: Features,
    test: Features,
    *,
    k: int = 20,
    temperature: float = 0.07,
    classes: int | None = None,
    chunk: int | None = None,
) -> float:
    r"""The share of test data whose class wins the vote of their k nearest train data (Wu et al., 2018, Section 3.4).

    .. math:: \hat y = \operatorname*{argmax}_c \sum_{i \in N_k} e^{s_i / \tau} \, [y_i = c], \quad s_i = \cos(f, f_i)

    Only ratios of the weights count, so they are taken relative to the nearest neighbour's, and no temperature overflows.

    Args:
        train: the bank that votes.
        test: what is classified.
        k: neighbours; of a smaller bank all vote, and `knn_protocol` says so.
        temperature: tau, positive.
        classes: their number, where more are known than appear in the labels.
        chunk: test rows per matrix product, which bounds memory; by default so that 64 MiB of similarities exist at a time.

    Example:
        >>> bank = Features(torch.eye(2), torch.tensor([0, 1]))
        >>> knn_accuracy(bank, Features(torch.tensor([[3.0, 1.0], [0.1, 0.2]]), torch.tensor([0, 1])), k=1)
        1.0
    """
    check_pair(train, test)
    k, temperature = (
        min(checks.whole("k", k, at_least=1), len(train.values)),
        float(checks.positive("temperature", temperature)),
    )
    found = 1 + int(max(train.labels.max(), test.labels.max()))
    classes = found if classes is None else checks.whole("classes", classes, at_least=found)
    chunk = max(1, _ENTRIES // len(train.values)) if chunk is None else checks.whole("chunk", chunk, at_least=1)
    bank, labels = F.normalize(train.values.float(), dim=1), train.labels.to(train.values.device)
    right = torch.zeros((), dtype=torch.int64, device=bank.device)
    for rows, wanted in zip(test.values.split(chunk), test.labels.split(chunk), strict=True):
        similarity = F.normalize(rows.float(), dim=1) @ bank.T
        right += (_vote(similarity, labels, k, temperature, classes) == wanted.to(bank.device)).sum()
    return int(right) / len(test.values)


def knn_protocol(train: Features, test: Features, *, k: int = 20, temperature: float = 0.07) -> str:
    """What `knn_accuracy` with these arguments does, in words to print beside its number."""
    n, d = train.values.shape
    capped = f" (all of the bank; {k} asked for)" if k > n else ""
    return (
        f"kNN vote: cosine, k = {min(k, n)}{capped}, weights exp(s / {temperature:g}), {n} train and {len(test.values)} test "
        f"features of width {d}"
    )


def _vote(similarity: Tensor, labels: Tensor, k: int, temperature: float, classes: int) -> Tensor:
    """The winning class of each row."""
    nearest, which = similarity.topk(k, dim=1)  # sorted: the first column is the nearest
    weights = ((nearest - nearest[:, :1]) / temperature).exp()
    votes = weights.new_zeros(len(similarity), classes).scatter_add_(1, labels[which], weights)
    return votes.argmax(dim=1)
