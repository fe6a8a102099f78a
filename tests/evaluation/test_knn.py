import math

import pytest
import torch
from torch import Tensor

from entrec.evaluation import Features, knn_accuracy, knn_protocol


def blobs(n: int, classes: int, d: int, seed: int, spread: float = 1.2) -> Features:
    centres = torch.randn(classes, d, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    return Features(centres[labels] + spread * torch.randn(n, d, generator=generator), labels)


TRAIN, TEST = blobs(300, 5, 6, 0), blobs(120, 5, 6, 1)


@pytest.mark.parametrize("temperature", [0.07, 0.5])
@pytest.mark.parametrize("k", [1, 7, 20])
def test_equals_scikit_learn(k: int, temperature: float) -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")

    def weights(distances: Tensor) -> Tensor:
        return torch.exp((1 - torch.as_tensor(distances)) / temperature).numpy()  # type: ignore[return-value]

    reference = neighbors.KNeighborsClassifier(k, metric="cosine", weights=weights)
    reference.fit(TRAIN.values.double().numpy(), TRAIN.labels.numpy())
    wanted = reference.score(TEST.values.double().numpy(), TEST.labels.numpy())
    assert 0.3 < wanted < 1
    assert knn_accuracy(TRAIN, TEST, k=k, temperature=temperature) == pytest.approx(wanted, abs=1e-9)


def test_equals_the_formula_in_a_loop() -> None:
    right = 0
    for f, label in zip(TEST.values.double(), TEST.labels.tolist(), strict=True):
        cosines = [
            (float(f @ g / f.norm() / g.norm()), int(y)) for g, y in zip(TRAIN.values.double(), TRAIN.labels, strict=True)
        ]
        votes = [0.0] * 5
        for cosine, y in sorted(cosines, reverse=True)[:9]:
            votes[y] += math.exp(cosine / 0.1)
        right += votes.index(max(votes)) == label
    assert knn_accuracy(TRAIN, TEST, k=9, temperature=0.1) == right / 120


def test_chunks_and_scale_change_nothing() -> None:
    whole = knn_accuracy(TRAIN, TEST)
    assert all(knn_accuracy(TRAIN, TEST, chunk=chunk) == whole for chunk in (1, 7, 120, 1000))
    assert knn_accuracy(TRAIN._replace(values=TRAIN.values * 1e3), TEST._replace(values=TEST.values * 1e-3)) == whole


@pytest.mark.parametrize("temperature", [0.01, 0.001, 1e-6])
def test_no_temperature_overflows(temperature: float) -> None:
    """With a tiny temperature the nearest neighbour decides alone; e^(1 / T) would be infinite for all of them."""
    assert knn_accuracy(TRAIN, TEST, temperature=temperature, k=20) >= 0.3
    assert knn_accuracy(TRAIN, TEST, temperature=1e-6, k=20) == knn_accuracy(TRAIN, TEST, k=1)


def test_a_large_temperature_counts_heads() -> None:
    bank = Features(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.5, 0.8]]), torch.tensor([0, 1, 1]))
    query = Features(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    assert knn_accuracy(bank, query, k=3, temperature=100.0) == 1
    assert knn_accuracy(bank, query, k=3, temperature=0.01) == 0


def test_a_small_bank_votes_as_a_whole_and_says_so() -> None:
    bank = Features(TRAIN.values[:8], TRAIN.labels[:8])
    assert knn_accuracy(bank, TEST, k=20) == knn_accuracy(bank, TEST, k=8)
    assert "k = 8 (all of the bank; 20 asked for)" in knn_protocol(bank, TEST, k=20)


def test_the_protocol_is_in_words() -> None:
    words = knn_protocol(TRAIN, TEST, k=5, temperature=0.1)
    assert words == "kNN vote: cosine, k = 5, weights exp(s / 0.1), 300 train and 120 test features of width 6"


def test_classes_and_zero_vectors_and_half_precision() -> None:
    whole = knn_accuracy(TRAIN, TEST)
    assert knn_accuracy(TRAIN, TEST, classes=50) == whole
    origin = Features(torch.zeros(1, 6), torch.tensor([0]))  # as near to all of the bank, so that heads are counted
    assert knn_accuracy(Features(TRAIN.values[:5], torch.tensor([1, 0, 2, 0, 0])), origin) == 1
    assert knn_accuracy(TRAIN._replace(values=TRAIN.values.bfloat16()), TEST) == pytest.approx(whole, abs=0.05)


def test_a_class_that_only_the_test_set_has_is_never_guessed() -> None:
    assert knn_accuracy(TRAIN, TEST._replace(labels=torch.full((120,), 9))) == 0


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train.labels must all be 0 or more, but 1 of 300 are not: no label\?"):
        knn_accuracy(TRAIN._replace(labels=torch.cat([torch.tensor([-1]), TRAIN.labels[1:]])), TEST)
    with pytest.raises(ValueError, match=r"train.values and test.values must have the same last dimension"):
        knn_accuracy(TRAIN, TEST._replace(values=TEST.values[:, :3]))
    with pytest.raises(ValueError, match=r"test.labels must have one label per row"):
        knn_accuracy(TRAIN, TEST._replace(labels=TEST.labels[:3]))
    with pytest.raises(ValueError, match="temperature must be positive"):
        knn_accuracy(TRAIN, TEST, temperature=0.0)
    with pytest.raises(ValueError, match="classes must be at least 5, got 2"):
        knn_accuracy(TRAIN, TEST, classes=2)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        knn_accuracy(TRAIN, TEST, k=0)
