"""Both scores from one call, on data of which some have no label."""

import pytest
import torch
from torch import Tensor, nn

from entrec.data import Held
from entrec.evaluation import Features, extract, few_labels, knn_accuracy, linear_probe
from entrec.evaluation.scores import score, score_features
from tests.evaluation.test_knn import blobs

TRAIN, TEST = blobs(300, 5, 6, 0), blobs(120, 5, 6, 1)


def partly(features: Features, every: int) -> Features:
    """The same among rows of noise without a label."""
    n = len(features.labels) * every
    values, labels = 9 * torch.randn(n, features.values.shape[1]), torch.full((n,), -1)
    values[::every], labels[::every] = features.values, features.labels
    return Features(values, labels, ("bad.png",))


def test_rows_without_a_label_change_no_score() -> None:
    whole = score_features(TRAIN, TEST, 5, few=True)
    found = score_features(partly(TRAIN, 4), partly(TEST, 2), 5, few=True)
    assert [x.accuracy for x in found.scores] == [x.accuracy for x in whole.scores]
    assert whole.knn.accuracy == knn_accuracy(TRAIN, TEST)
    assert whole.linear.accuracy == linear_probe(TRAIN, TEST).accuracy
    assert [x.accuracy for x in whole.few] == [few_labels(TRAIN, TEST, n).mean for n in (1, 5)]
    for plain, x in zip(whole.scores, found.scores, strict=True):
        assert x.protocol == f"{plain.protocol}; left out for want of a label: 900 train and 120 test"
    assert found.skipped == ("bad.png", "bad.png")


def test_what_is_not_left_out_is_not_said() -> None:
    assert all("left out" not in x.protocol for x in score_features(TRAIN, TEST, 5).scores)
    one_sided = score_features(partly(TRAIN, 2), TEST, 5)
    assert one_sided.knn.protocol.endswith("; left out for want of a label: 300 train")


@pytest.mark.parametrize("bare", ["train", "test"])
def test_without_any_label_there_is_no_score(bare: str) -> None:
    splits = {"train": TRAIN, "test": TEST}
    n = len(splits[bare].labels)
    splits[bare] = splits[bare]._replace(labels=torch.full((n,), -1))
    with pytest.raises(ValueError, match=f"{bare} must have labels, but none of its {n} rows has one"):
        score_features(splits["train"], splits["test"], 5)


def test_an_encoder_is_scored_on_the_images_with_labels() -> None:
    def images(n: int, labels: Tensor) -> Held:
        pixels = torch.randint(0, 100, (n, 3, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))
        return Held(pixels + 100 * torch.eye(3, dtype=torch.uint8)[labels][:, :, None, None], labels.clone())

    train, test = images(60, torch.arange(60) % 3), images(30, torch.arange(30) % 3)
    train.labels[::2] = -1
    found = score(nn.Flatten(), train, test, lambda x: x / 255, 3)
    assert found.knn.accuracy == 1
    assert found.linear.accuracy == 1
    assert "30 train and 30 test features" in found.knn.protocol
    assert found.knn.protocol.endswith("left out for want of a label: 30 train")


class Logarithm(nn.Module):
    """Has no weights, and gives infinity to black pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).log()


def test_features_that_are_no_numbers_are_counted_and_not_scored() -> None:
    white = Held(torch.full((30, 1, 2, 2), 255, dtype=torch.uint8), torch.arange(30) % 3)
    partly_black = Held(white.images.clone(), white.labels)
    partly_black.images[:7, :, 0, 0] = 0
    with pytest.raises(ValueError, match=r"^7 of the 30 rows of test features are NaN or infinite, though .* are all finite"):
        score(Logarithm(), white, partly_black, lambda x: x / 255, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_scores_are_computed_where_the_features_are() -> None:
    def there(features: Features) -> Features:
        return features._replace(values=features.values.cuda())

    on_cpu = score_features(partly(TRAIN, 4), TEST, 5, few=True)
    on_gpu = score_features(there(partly(TRAIN, 4)), there(TEST), 5, few=True)
    for a, b in zip(on_cpu.scores, on_gpu.scores, strict=True):
        assert a.accuracy == pytest.approx(b.accuracy, abs=0.02)
        assert a.name == b.name
    kept = extract(
        nn.Flatten(), Held(torch.zeros(3, 1, 2, 2, dtype=torch.uint8)), lambda x: x / 255, device="cuda", keep_on_device=True
    )
    assert kept.values.is_cuda
    assert not kept.labels.is_cuda
