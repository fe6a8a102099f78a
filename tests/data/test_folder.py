"""Folders of images: what is found, what is left out, how it is split, labelled and held."""

import os
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2.functional import pil_to_tensor

from entrec.data import CorruptImage, Files, Held, Source, open_source
from entrec.data.folder import listed
from entrec.data.source import IMAGENET_MEAN, IMAGENET_STD
from tests.data.pictures import save, truncate


def test_everything_nested_is_found_sorted_and_hidden_things_are_not(tmp_path: Path) -> None:
    wanted = ["a/b/c/1.JPG", "a/b/2.png", "a.jpeg", "z/9.TiFF", "a/0.webp"]
    others = [".hidden.png", ".cache/1.png", "a/._1.png"]
    for name in [*wanted, *others]:
        save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "folder.png").mkdir()
    assert listed(tmp_path) == sorted(wanted)


def test_runs_are_not_data(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.png")
    save(tmp_path / "runs" / "byol" / "figures" / "loss.png")
    (tmp_path / "runs" / "byol" / "checkpoints").mkdir()
    (tmp_path / "runs" / "byol" / "config.yaml").write_text("method: byol")
    assert listed(tmp_path) == ["images/a.png"]
    with pytest.raises(ValueError, match="is a run directory of entrec"):
        open_source(tmp_path / "runs" / "byol")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    save(tmp_path / "a" / "1.png")
    save(tmp_path.parent / "elsewhere" / "2.png")
    os.symlink(tmp_path, tmp_path / "a" / "up")
    os.symlink(tmp_path.parent / "elsewhere", tmp_path / "other")
    assert listed(tmp_path) == ["a/1.png", "other/2.png"]


def test_a_folder_is_found_once_and_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "data" / "m" / "n" / "1.png")
    save(tmp_path / "beside" / "2.png")
    for name, target in {"a": "data/m", "z": "data/m", "m/a": "data/m/n", "up": ""}.items():
        os.symlink(tmp_path / target, tmp_path / "data" / name)
    os.symlink(tmp_path / "data", tmp_path / "beside" / "link")
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "data", Path("data"), Path("beside/link")):
        assert listed(folder) == ["m/n/1.png", "up/beside/2.png"]


def test_no_file_is_asked_for_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        save(tmp_path / "class" / f"{i}.png")
    asked: list[str] = []
    stat = os.stat

    def noted(path: str, *args: object, **kwargs: object) -> os.stat_result:
        asked.append(str(path))
        return stat(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", noted)
    assert len(listed(tmp_path)) == 20
    assert not [path for path in asked if path.endswith(".png")]


def test_labels_and_order_are_those_of_torchvision(tmp_path: Path) -> None:
    for i, name in enumerate(["dog", "cat", "cat/sub", "ant"] * 2):
        save(tmp_path / name / f"{i}.png", i)
    source, reference = open_source(tmp_path), ImageFolder(str(tmp_path))
    assert isinstance(source.train, Held)
    assert source.classes == tuple(reference.classes)
    expected = {pil_to_tensor(image).numpy().tobytes(): label for image, label in reference}
    got = {image.numpy().tobytes(): int(label) for image, label in zip(source.train.images, source.train.labels, strict=True)}
    assert got == expected


@pytest.mark.parametrize("held_out", ["test", "val"])
def test_splits_are_recognised(held_out: str, tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "train/dog/2.png", f"{held_out}/dog/3.png", "extra/4.png"):
        save(tmp_path / name)
    source = open_source(str(tmp_path))
    assert isinstance(source.train, Held)
    assert isinstance(source.test, Held)
    assert source.train.labels.tolist() == [0, 1]
    assert source.test.labels.tolist() == [1]
    assert source.classes == ("cat", "dog")


def opened(folder: Path, *sizes: tuple[int, int], mode: str = "RGB", labels: bool | None = None) -> Source:
    for i, size in enumerate(sizes):
        save(folder / f"{i}.png", i, size, mode)
    return open_source(folder, labels=labels)


def test_small_images_of_one_size_are_held_and_measured(tmp_path: Path) -> None:
    source = opened(tmp_path, *[(12, 10)] * 5)
    assert isinstance(source.train, Held)
    assert source.image_size == 10
    pixels = source.train.images.double() / 255
    assert source.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert source.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-6)


@pytest.mark.parametrize("sizes", [[(12, 10), (10, 12)], [(97, 20)] * 2])
def test_other_images_stay_in_files(sizes: list[tuple[int, int]], tmp_path: Path) -> None:
    source = opened(tmp_path, *sizes)
    assert isinstance(source.train, Files)
    assert (source.mean, source.std) == (IMAGENET_MEAN, IMAGENET_STD)
    assert source.train[0][0].shape == (3, sizes[0][1], sizes[0][0])


def test_one_large_image_among_many_is_found_out(tmp_path: Path) -> None:
    source = opened(tmp_path, *[(8, 8)] * 65, (9, 9), *[(8, 8)] * 65)  # the headers of every third are looked at
    assert isinstance(source.train, Files)
    assert len(source.train) == 131


@pytest.mark.parametrize(("side", "view"), [(100, 96), (300, 224), (20, 32)])
def test_views_are_no_larger_than_images(side: int, view: int, tmp_path: Path) -> None:
    assert opened(tmp_path, (side, side), (side, side + 1)).image_size == view


def test_grey_folders_have_one_channel_and_mixed_ones_three(tmp_path: Path) -> None:
    assert opened(tmp_path / "grey", (8, 8), (8, 8), mode="L").channels == 1
    save(tmp_path / "mixed" / "z.png", mode="RGB", size=(8, 8))
    mixed = opened(tmp_path / "mixed", (8, 8), (8, 8), mode="L")
    assert mixed.channels == 3
    assert isinstance(mixed.train, Held)
    assert mixed.train.images.shape == (3, 3, 8, 8)


def test_broken_files_are_left_out_counted_and_named(tmp_path: Path) -> None:
    for i in range(4):
        save(tmp_path / f"{i}.png", i, size=(40, 40))
    truncate(tmp_path / "2.png")
    source = open_source(tmp_path)
    assert isinstance(source.train, Held)
    assert len(source.train) == 3
    assert source.train.skipped == (f"{tmp_path / '2.png'}: image file is truncated (OSError)",)
    with pytest.raises(CorruptImage, match=r"2\.png"):
        open_source(tmp_path, strict=True)


def test_a_folder_of_nothing_but_broken_files_is_an_error(tmp_path: Path) -> None:
    truncate(save(tmp_path / "1.png", size=(40, 40)))
    with pytest.raises(CorruptImage, match=r"1\.png: image file is truncated \(OSError\); and none of all 1 images"):
        open_source(tmp_path)


def test_floating_point_pictures_are_left_out_with_the_reason(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png", i, size=(8, 8), mode="L")
    Image.new("F", (8, 8), 2.5).save(tmp_path / "floats.tif")
    why = (
        "floating-point pixels are read where all are within 0 and 1, and these go from 2.5 to 2.5: scale all images alike, or "
        "save them with 8 or 16 bits"
    )
    source = open_source(tmp_path)
    assert isinstance(source.train, Held)
    assert source.train.images.shape == (3, 1, 8, 8)  # it is no reason to take grey images for coloured ones
    assert source.train.skipped == (f"{tmp_path / 'floats.tif'}: {why}",)
    with pytest.raises(CorruptImage) as caught:
        open_source(tmp_path, strict=True)
    assert str(caught.value) == f"cannot decode the image {tmp_path / 'floats.tif'}: {why}"


def test_the_user_has_the_last_word_on_the_size(tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    assert open_source(tmp_path, image_size=64).image_size == 64


def test_a_folder_without_images_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(FileNotFoundError, match=r"no images in .*looked for \.jpg, \.jpeg, \.png"):
        open_source(tmp_path)


def test_labels_survive_loading(tmp_path: Path) -> None:
    for i in range(6):
        save(tmp_path / "abc"[i % 3] / f"{i}.png", i, size=(30, 30))
    truncate(tmp_path / "b" / "1.png")
    source = open_source(tmp_path)
    assert isinstance(source.train, Held)
    assert torch.equal(source.train.labels, torch.tensor([0, 0, 1, 2, 2]))
