"""Accuracy with few labels per class, over several draws of them."""

import math
import statistics
from typing import NamedTuple

import torch
from torch import Tensor

from entrec import checks
from entrec.evaluation.features import Features, check_pair
from entrec.evaluation.linear import fit, standardised

_L2 = 0.01


class Scores(NamedTuple):
    """Accuracies over several draws of labels."""

    mean: float  # 0..1
    standard_error: float  # of the mean, over the draws; the test set is the same in all
    protocol: str  # what was done, in words to print beside the number


def few_labels(train: Features, test: Features, per_class: int, draws: int = 20, seed: int = 0) -> Scores:
    """Mean test accuracy of logistic regression that knows `per_class` labels of each class, over random choices of them.

    Columns are standardised with all of the train features, which needs no labels. The penalty is fixed, since so few labels
    leave none to choose it with.

    Args:
        train: the features to draw from; each class that appears must appear `per_class` times.
        test: the features to be judged by.
        per_class: labels of each class.
        draws: how many choices to average over, at least 2.
        seed: of the first choice; choice i of a seed is the same whatever the number of draws.

    Example:
        >>> features = Features(torch.tensor([[0.0], [0.1], [1.0], [1.1]]), torch.tensor([0, 0, 1, 1]))
        >>> few_labels(features, features, per_class=1, draws=3).mean
        1.0
    """
    check_pair(train, test)
    labels, draws = train.labels.cpu(), checks.whole("draws", draws, at_least=2)
    _check_enough(labels, checks.whole("per_class", per_class, at_least=1))
    classes = 1 + int(max(labels.max(), test.labels.max()))
    values, test_values = standardised(train.values, test.values)
    generator = torch.Generator().manual_seed(checks.whole("seed", seed, at_least=0))
    accuracies = []
    for _ in range(draws):
        rows = _balanced(labels, per_class, generator)
        accuracies.append(fit(values[rows], labels[rows], classes, _L2).accuracy(test_values, test.labels))
    protocol = (
        f"few labels: logistic regression, labels per class: {per_class}, L2 {_L2:g}, mean of {draws} draws; features "
        f"standardised with all {len(values)} of the train set, tested on {len(test_values)}"
    )
    return Scores(statistics.fmean(accuracies), statistics.stdev(accuracies) / math.sqrt(draws), protocol)


def _check_enough(labels: Tensor, per_class: int) -> None:
    found, counts = labels.unique(return_counts=True)
    if int(counts.min()) < per_class:
        scarce = f"class {int(found[counts.argmin()])} has {int(counts.min())}"
        raise ValueError(f"per_class must be at most the labels of each class, got {per_class}: {scarce}")


def _balanced(labels: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Rows of a random choice with `per_class` of each class: the first of each in a random order."""
    order = torch.randperm(len(labels), generator=generator)
    return torch.cat([order[labels[order] == c][:per_class] for c in labels.unique()])
