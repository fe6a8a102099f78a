"""Accuracy of a linear classifier of frozen features."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from entrec.evaluation.features import Features, check_pair

GRID = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of penalties, from strong to weak: each fit starts at the one before it
_DOUBLE = 2**18  # entries of features up to which the fit runs in float64, beyond it in float32
_AT_ONCE = 2**22  # entries of features that exist in float64 at a time on the way to their mean and deviation: 32 MiB
_ITERATIONS = 200


class Probe(NamedTuple):
    """How well a linear classifier of frozen features does."""

    accuracy: float  # on the test set, 0..1
    l2: float  # the penalty that was used
    protocol: str  # what was done, in words to print beside the number
    standard_error: float  # of the accuracy as an estimate from this many test data, binomial


class Classifier(NamedTuple):
    """Logits W x + b of features that were standardised."""

    weight: Tensor  # (classes, d)
    bias: Tensor  # (classes,)

    def accuracy(self, values: Tensor, labels: Tensor) -> float:
        """The share of rows whose largest logit is their label's."""
        right = (values.to(self.weight) @ self.weight.T + self.bias).argmax(dim=1) == labels.to(self.weight.device)
        return int(right.sum()) / len(labels)


def linear_probe(train: Features, test: Features, *, l2: float | None = None, seed: int = 0) -> Probe:
    """Train multinomial logistic regression on the train features and test it on the others. Deterministic.

    Columns are standardised with the train set's mean and deviation, and a column that is constant there becomes 0.

    Args:
        train: the features to train with.
        test: the features to be judged by; they choose nothing.
        l2: the penalty, at least 0, in the units of `fit`; None chooses from `GRID` by the accuracy on a tenth of the train
            features that the others are fitted without, the stronger one if two tie, and fits all of them with it.
        seed: of that tenth.

    Example:
        >>> x = torch.arange(20.0)[:, None]
        >>> features = Features(x, (x[:, 0] >= 10).long())
        >>> linear_probe(features, features, l2=1e-3).accuracy
        1.0
    """
    check_pair(train, test)
    if l2 is not None and not 0 <= l2 < math.inf:
        raise ValueError(f"l2 must be at least 0 and finite, got {l2}")
    classes = 1 + int(max(train.labels.max(), test.labels.max()))
    values, test_values = standardised(train.values, test.values)
    how = "given" if l2 is not None else "chosen on a tenth of them"
    l2 = _chosen(values, train.labels, classes, seed) if l2 is None else l2
    accuracy = fit(values, train.labels, classes, l2).accuracy(test_values, test.labels)
    protocol = (
        f"linear probe: logistic regression on {len(values)} standardised train features of width {values.shape[1]}, "
        f"L2 {l2:g} ({how}), L-BFGS, tested on {len(test_values)}"
    )
    return Probe(accuracy, l2, protocol, math.sqrt(accuracy * (1 - accuracy) / len(test_values)))


def standardised(reference: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """The reference and the others with the reference's mean and deviation taken out of each column; constant ones are 0.

    Each result is the one new tensor of its size: sums and differences are float64, a few rows at a time.
    """
    n, rows = len(reference), max(1, _AT_ONCE // reference.shape[1])
    mean = torch.stack([part.sum(dim=0, dtype=torch.float64) for part in reference.split(rows)]).sum(dim=0) / n
    squares = torch.stack([(part.double() - mean).square_().sum(dim=0) for part in reference.split(rows)]).sum(dim=0)
    deviation = (squares / n).sqrt()
    # A deviation at the rounding of float32 is that of a constant.
    scale = torch.where(deviation > 1e-6 * mean.abs(), 1 / deviation, 0.0)
    dtype = torch.float64 if reference.numel() <= _DOUBLE else torch.float32
    return tuple(_scaled(x, mean, scale, rows, dtype) for x in (reference, *others))


def _scaled(x: Tensor, mean: Tensor, scale: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """(x - mean) scale, in float64 but for the result, so many rows at a time."""
    found = torch.empty(x.shape, dtype=dtype, device=x.device)
    for part, into in zip(x.split(rows), found.split(rows), strict=True):
        into.copy_((part.double() - mean).mul_(scale))
    return found


def fit(values: Tensor, labels: Tensor, classes: int, l2: float, start: Classifier | None = None) -> Classifier:
    r"""The minimum of the mean cross entropy with a penalty on the weights, not on the biases, by L-BFGS.

    .. math:: -\frac1n \sum_i \log \operatorname{softmax}(W x_i + b)_{y_i} + \frac{\lambda}{2} |W|^2

    scikit-learn's C is 1 / (n lambda). The search runs in coordinates V with W = V P, where P is the inverse root of the
    curvature at W = 0, which turns the long valleys of correlated features into a bowl.

    Args:
        values: standardised features (n, d), whose dtype the search takes.
        labels: (n,), from 0 to `classes` - 1.
        classes: their number.
        l2: lambda, at least 0.
        start: where to start; zeros by default.
    """
    if len(values) < values.shape[1]:  # the weights are sums of rows, so the search runs in the space that the rows span
        basis = torch.linalg.qr(values.T).Q
        within = None if start is None else Classifier(start.weight @ basis, start.bias)
        found = fit(values @ basis, labels, classes, l2, within)
        return Classifier(found.weight @ basis.T, found.bias)
    root, inverse_root = _curvature_roots(values, classes, l2)
    labels = labels.to(values.device)
    v = values.new_zeros(classes, values.shape[1]) if start is None else start.weight @ root
    b = values.new_zeros(classes, 1) if start is None else start.bias[:, None].clone()
    parameters = [v.requires_grad_(), b.requires_grad_()]
    search = torch.optim.LBFGS(
        parameters, max_iter=_ITERATIONS, tolerance_grad=1e-5, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        search.zero_grad()
        weight = v @ inverse_root
        logits = weight @ values.T + b  # (classes, n): several times faster on a CPU than (n, classes)
        loss = F.cross_entropy(logits[None], labels[None]) + l2 / 2 * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        search.step(closure)
    return Classifier((v @ inverse_root).detach(), b.detach()[:, 0])


def _curvature_roots(values: Tensor, classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """The root of the penalised loss's curvature at W = 0, (1 / classes) X^T X / n + l2, and its inverse, both (d, d)."""
    size, basis = torch.linalg.eigh((values.T @ values / len(values)).double())
    # The floor keeps directions without any spread, which no datum can see, finite.
    root = (size.clamp(min=0) / classes + l2).clamp(min=1e-9).sqrt()
    return ((basis * root) @ basis.T).to(values.dtype), ((basis / root) @ basis.T).to(values.dtype)


def _chosen(values: Tensor, labels: Tensor, classes: int, seed: int) -> float:
    """The penalty of `GRID` that does best on a held-out tenth, looked for until two weaker ones do no better."""
    if len(values) < 2:
        raise ValueError("train must hold at least 2 rows to choose l2 on a part of them, got 1: give l2")
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed)).to(values.device)
    held, kept = order.split([max(1, len(values) // 10), len(values) - max(1, len(values) // 10)])
    labels = labels.to(values.device)
    fitting, fitting_labels = values[kept], labels[kept]
    best = -1.0
    chosen, classifier, since = GRID[0], None, 0
    for l2 in GRID:
        classifier = fit(fitting, fitting_labels, classes, l2, classifier)
        accuracy = classifier.accuracy(values[held], labels[held])
        since += 1
        if accuracy > best:
            best, chosen, since = accuracy, l2, 0
        if since == 2:  # weaker penalties only overfit more, and their fits are the slow ones
            break
    return chosen
