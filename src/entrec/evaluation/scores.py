"""How good an encoder's frozen features are: kNN and linear probe, each with its protocol in words."""

from typing import Any, NamedTuple

import torch
from torch import nn

from entrec.evaluation.features import Features, Prepare, extract
from entrec.evaluation.few_labels import few_labels
from entrec.evaluation.knn import knn_accuracy, knn_protocol
from entrec.evaluation.linear import linear_probe

FEW = (1, 5)  # labels per class


class Score(NamedTuple):
    """One number, what it stands for, and how uncertain it is (standard error; None where it is not known)."""

    name: str
    accuracy: float
    standard_error: float | None
    protocol: str


class Evaluation(NamedTuple):
    """The scores of an encoder; `knn_top1` and `linear_top1` on all labels, `few` with 1 and 5 labels per class."""

    knn: Score
    linear: Score
    few: tuple[Score, ...] = ()

    @property
    def scores(self) -> tuple[Score, ...]:
        """All of them."""
        return (self.knn, self.linear, *self.few)


def score(
    encoder: nn.Module,
    train: Any,
    test: Any,
    prepare: Prepare,
    classes: int,
    *,
    few: bool = False,
    device: torch.device | str = "cpu",
    workers: int = 0,
) -> Evaluation:
    """Evaluate a frozen encoder, in eval mode, on a labelled train and test set."""
    fitted = extract(encoder, train, prepare, device=device, workers=workers)
    judged = extract(encoder, test, prepare, device=device, workers=workers)
    return score_features(fitted, judged, classes, few=few)


def score_features(train: Features, test: Features, classes: int, *, few: bool = False) -> Evaluation:
    """The same from features."""
    top1 = knn_accuracy(train, test, classes=classes)
    error = (top1 * (1 - top1) / len(test.values)) ** 0.5
    probe = linear_probe(train, test)
    return Evaluation(
        Score("kNN", top1, error, knn_protocol(train, test)),
        Score("linear", probe.accuracy, probe.standard_error, probe.protocol),
        tuple(_few(train, test, per_class) for per_class in FEW) if few else (),
    )


def _few(train: Features, test: Features, per_class: int) -> Score:
    found = few_labels(train, test, per_class)
    return Score(f"linear, {per_class} label{'s' if per_class > 1 else ''} per class", *found)
