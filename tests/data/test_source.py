"""What a source says of itself."""

import dataclasses
from pathlib import Path

import pytest
import torch

from entrec.data import Files, Held, Source, ViewFacts, open_source
from entrec.data.source import PixelSums, measured, small_size
from tests.data.pictures import save
from tests.data.test_adapt import PIXELS, Items


def held(labels: list[int]) -> Held:
    return Held(torch.zeros(len(labels), 3, 8, 8, dtype=torch.uint8), torch.tensor(labels))


def source(train: list[int], test: list[int] | None = None, classes: int = 0) -> Source:
    names = tuple(map(str, range(classes)))
    return Source("a", held(train), None if test is None else held(test), names, 3, 32, (0.5,) * 3, (0.2,) * 3)


@pytest.mark.parametrize(
    ("described", "data"),
    [
        ("4 train and 2 test images of 2 classes, 3 x 32 x 32", source([0, 1, 0, 1], [0, 1], 2)),
        ("4 train images of 2 classes, 3 x 32 x 32", source([0, 1, 0, 1], None, 2)),
        ("2 train images without labels, 3 x 32 x 32", source([-1, -1])),
        ("1 train image of 1 class, 3 x 32 x 32", source([0], None, 1)),
        ("2 train and 1 test image of 2 classes, 3 x 32 x 32", source([0, 1], [0], 2)),
        ("1 train and 2 test images without labels, 3 x 32 x 32", source([-1], [-1, -1])),
        ("3 train and 1 test image of 2 classes, some without a label, 3 x 32 x 32", source([0, 1, -1], [0], 2)),
    ],
)
def test_one_line_says_what_the_data_are(described: str, data: Source) -> None:
    assert data.described == described


def test_shapes_are_described() -> None:
    assert open_source("shapes").described == "4096 train and 2048 test images of 10 classes, 3 x 32 x 32"


def test_files_without_a_label_are_described() -> None:
    files = Files(["a.png", "b.png"], torch.tensor([0, -1]))
    data = dataclasses.replace(source([0], None, 1), train=files)
    assert data.described == "2 train images of 1 class, some without a label, 3 x 32 x 32"


def test_several_views_are_described() -> None:
    data = dataclasses.replace(source([-1, -1]), views=2)
    assert data.described == "2 train images without labels, 2 views of 3 x 32 x 32"
    data = dataclasses.replace(data, others=(ViewFacts(1, (0.5,), (0.2,)),))
    assert data.described == "2 train images without labels, views of 3 x 32 x 32 and 1 x 32 x 32"


def test_sums_of_parts_are_those_of_the_whole() -> None:
    images = torch.randint(0, 256, (12, 3, 5, 4), dtype=torch.uint8)
    sums = PixelSums(3)
    for part in images.split(5):
        sums.add(part)
    for got, wanted in zip(sums.moments(), measured(images), strict=True):
        assert got == pytest.approx(wanted, abs=1e-9)


def test_a_small_size_is_one_size() -> None:
    assert small_size([(96, 20)] * 2) == (96, 20)
    assert small_size([(96, 20), (20, 96)]) is None
    assert small_size([(97, 20)]) is None
    assert small_size([]) is None


def test_notices_of_a_folder_reach_the_source(tmp_path: Path) -> None:
    for name in ("test/1.png", "train/cat/2.png", "train/dog/3.png"):
        save(tmp_path / name)
    data = open_source(tmp_path)
    assert isinstance(data.test, Held)
    assert data.test.labels.tolist() == [-1]
    assert data.notices == (
        "held-out images are not in folders of the training classes (1 of 1, such as test/1.png): all of them are taken "
        "without labels",
    )
    assert open_source(data, image_size=16).notices == data.notices
    assert open_source(Items(PIXELS)).notices == ()
