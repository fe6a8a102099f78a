"""Data sets by name: what they hold, and what is said when they are not there."""

import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torchvision import datasets

from entrec.data import Files, Held, open_source, render
from entrec.data.source import IMAGENET_MEAN, measured
from tests.data.pictures import save


def test_shapes_are_what_render_draws() -> None:
    source = open_source("shapes", seed=3)
    assert isinstance(source.train, Held)
    assert isinstance(source.test, Held)
    assert (len(source.train), len(source.test)) == (4096, 2048)
    assert (source.channels, source.image_size, source.backbone, len(source.classes)) == (3, 32, "tiny", 10)
    assert torch.equal(source.test.images, render(2048, 7).images)
    assert open_source("shapes", seed=3) is source  # drawn once
    pixels = source.train.images.double() / 255
    assert source.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert source.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-5)


def test_digits_are_scikit_learns() -> None:
    source = open_source("digits")
    assert isinstance(source.train, Held)
    assert isinstance(source.test, Held)
    found = load_digits()
    assert (len(source.train), len(source.test)) == (1438, 359)
    assert source.test.labels.tolist() == found.target[4::5].tolist()
    reduced = functional.avg_pool2d(source.test.images.float(), 4)[:, 0]  # bilinear interpolation keeps most of each pixel
    original = torch.as_tensor(found.images[4::5]).float() / 16 * 255
    assert torch.corrcoef(torch.stack([reduced.flatten(), original.flatten()]))[0, 1] > 0.97
    assert open_source("digits", image_size=16).image_size == 16
    assert (source.channels, source.backbone) == (1, "tiny")


def fake_cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray[Any, Any]:
    """Six pictures in torchvision's files."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    data = np.random.default_rng(0).integers(0, 256, (6, 3072), dtype=np.uint8)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": [0, 1, 2, 3, 4, 9]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {i}" for i in range(10)]}))
    monkeypatch.setattr(datasets.cifar, "check_integrity", lambda *_: True)
    return data


def test_cifar_comes_from_torchvisions_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fake_cifar10(tmp_path, monkeypatch)
    source = open_source("cifar10", root=tmp_path)
    assert isinstance(source.train, Held)
    assert isinstance(source.test, Held)
    assert torch.equal(source.test.images, torch.as_tensor(data).reshape(6, 3, 32, 32))
    assert source.train.labels.tolist() == [0, 1, 2, 3, 4, 9] * 5
    assert source.classes[9] == "class 9"
    assert (source.image_size, source.channels, source.backbone) == (32, 3, "resnet18")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
def test_data_that_cannot_be_downloaded_are_asked_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    for module in (datasets.cifar, datasets.stl10):
        monkeypatch.setattr(module, "download_and_extract_archive", offline)
    with pytest.raises(FileNotFoundError, match=rf"{name} is not in .*downloading it failed.*root= .*\(no network\)"):
        open_source(name, root=tmp_path)


def test_imagenet_is_a_folder_with_train_and_val(tmp_path: Path) -> None:
    for i, name in enumerate(["train/n01/1.JPEG", "train/n02/2.JPEG", "val/n02/3.JPEG"]):
        save(tmp_path / name, i, size=(120 + i, 100))
    source = open_source("imagenet", root=tmp_path)
    assert isinstance(source.train, Files)
    assert isinstance(source.test, Files)
    assert source.test.labels.tolist() == [1]
    assert (source.name, source.image_size, source.mean) == ("imagenet", 224, IMAGENET_MEAN)


def test_imagenet_is_in_colour_whatever_its_first_images_are(tmp_path: Path) -> None:
    for name in ("train/n01/1.JPEG", "train/n02/2.JPEG"):
        save(tmp_path / name, mode="L", size=(120, 100))
    source = open_source("imagenet", root=tmp_path)
    assert source.train[0][0].shape == (3, 100, 120)  # type: ignore[union-attr]


def test_imagenet_with_a_flat_val_opens_without_labels(tmp_path: Path) -> None:
    for name in ("train/n01/1.JPEG", "train/n02/2.JPEG", "val/3.JPEG"):
        save(tmp_path / name, size=(120, 100))
    with pytest.raises(ValueError, match=r"such as val/3\.JPEG.*or say labels=False"):
        open_source("imagenet", root=tmp_path)
    assert open_source("imagenet", root=tmp_path, labels=False).classes == ()


def test_part_of_stl10_is_without_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stl10:
        classes: tuple[str, ...] = ("airplane", "bird")

        def __init__(self, root: str, split: str, download: bool) -> None:
            self.labels = np.array([0, 1, -1, -1] if split == "train+unlabeled" else [1])
            self.data = np.zeros((len(self.labels), 3, 96, 96), dtype=np.uint8)

    monkeypatch.setattr(datasets, "STL10", Stl10)
    source = open_source("stl10", root=tmp_path)
    assert source.described == "4 train and 1 test image of 2 classes, some without a label, 3 x 96 x 96"


def test_imagenet_without_its_archives_says_which(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"imagenet is not in .*ILSVRC2012_img_train\.tar"):
        open_source("imagenet", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "near"), [("shape", "shapes"), ("Shapes", "shapes"), ("cifar-10", "cifar10"), ("imagnet", "imagenet")]
)
def test_unknown_names_get_a_suggestion(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"unknown data '{name}'.*did you mean '{near}'"):
        open_source(name)


def test_names_like_nothing_get_the_list() -> None:
    with pytest.raises(ValueError, match=r"neither one of shapes, digits, cifar10.* that exists$"):
        open_source("qqqq")


@pytest.mark.parametrize("path", ["./nowhere", "/no/where", "images.tar.gz", Path("nowhere")])
def test_missing_paths_are_missing(path: str | Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder or archive"):
        open_source(path)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.png is a file, and not an archive"):
        open_source(save(tmp_path / "a.png"))
    with tarfile.open(tmp_path / "A.TAR", "w") as tar:
        tar.add(tmp_path / "a.png", arcname="a.png")
    assert len(open_source(tmp_path / "A.TAR").classes) == 0


def test_measuring_is_exact_and_never_zero() -> None:
    images = torch.randint(0, 256, (2500, 3, 5, 4), dtype=torch.uint8)
    images[:, 1] = 51
    mean, std = measured(images)
    pixels = images.double() / 255
    assert mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-7)
    assert std == pytest.approx(pixels.std((0, 2, 3), correction=0).clamp(min=1 / 255).tolist(), abs=1e-6)
    assert mean[1] == pytest.approx(0.2)
