"""How good an encoder's frozen features are: kNN and linear probe, each with its protocol in words."""

from typing import Any, NamedTuple

import torch
from torch import nn

from entrec.evaluation.features import Features, Prepare, extract, labelled, require_numbers
from entrec.evaluation.few_labels import few_labels
from entrec.evaluation.knn import knn_accuracy, knn_protocol
from entrec.evaluation.linear import linear_probe

FEW = (1, 5)  # labels per class
_COPIES = 4  # of the features that the probe may hold at once: as they came, standardised, those it fits, and in passing


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
    skipped: tuple[str, ...] = ()  # images of both splits that could not be read and are in no score
    encoder: str = ""  # whose encoder saw which view of an image, in words; the part of the protocol that all scores share

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
    knn_k: int = 20,
    knn_temperature: float = 0.07,
) -> Evaluation:
    """Evaluate a frozen encoder, in eval mode, on a train and a test set; images without a label do not count.

    Raises:
        ValueError: there are no labels, or features that are NaN or infinite.
    """
    found = []
    for name, split in (("train", train), ("test", test)):
        found.append(extract(encoder, split, prepare, device=device, workers=workers))
        require_numbers(found[-1], encoder, f"{name} features")
    return score_features(*_near(device, found), classes, few=few, knn_k=knn_k, knn_temperature=knn_temperature)


def score_features(
    train: Features,
    test: Features,
    classes: int,
    *,
    few: bool = False,
    knn_k: int = 20,
    knn_temperature: float = 0.07,
) -> Evaluation:
    """The same from features, computed where they are; rows without a label are left out, and the protocols say how many."""
    left_out = _left_out(train, test)
    skipped = (*train.skipped, *test.skipped)
    train, test = labelled(train, "train"), labelled(test, "test")
    top1 = knn_accuracy(train, test, k=knn_k, temperature=knn_temperature, classes=classes)
    error = (top1 * (1 - top1) / len(test.values)) ** 0.5
    probe = linear_probe(train, test)
    return Evaluation(
        Score("kNN", top1, error, knn_protocol(train, test, k=knn_k, temperature=knn_temperature) + left_out),
        Score("linear", probe.accuracy, probe.standard_error, probe.protocol + left_out),
        tuple(_few(train, test, per_class, left_out) for per_class in FEW) if few else (),
        skipped,
    )


def _near(device: torch.device | str, found: list[Features]) -> tuple[Features, Features]:
    """Features on a GPU that has room for the probe's work, or else where they are."""
    train, test = found
    where = torch.device(device)
    if where.type == "cuda":
        bytes_wanted = _COPIES * sum(features.values.nbytes for features in found)
        if bytes_wanted < torch.cuda.mem_get_info(where)[0]:
            return train._replace(values=train.values.to(where)), test._replace(values=test.values.to(where))
    return train, test


def _left_out(train: Features, test: Features) -> str:
    """The words for rows without a label, where there are any."""
    counts = {name: int((features.labels < 0).sum()) for name, features in (("train", train), ("test", test))}
    words = " and ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"; left out for want of a label: {words}" if words else ""


def _few(train: Features, test: Features, per_class: int, left_out: str) -> Score:
    found = few_labels(train, test, per_class)
    name = f"linear, {per_class} label{'s' if per_class > 1 else ''} per class"
    return Score(name, found.mean, found.standard_error, found.protocol + left_out)
