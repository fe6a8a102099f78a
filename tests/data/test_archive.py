"""Archives of images: the same as the folder, and nothing that leaves it."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from entrec.data import CorruptImage, Held, open_source
from tests.data.pictures import save


def folder(root: Path) -> Path:
    for i, name in enumerate(["train/cat/1.png", "train/dog/2.PNG", "train/dog/a/3.png", "test/dog/4.png", "train/.x/5.png"]):
        save(root / name, i)
    (root / "README").write_text("x")
    return root


def packed(source: Path, archive: Path, top: str) -> Path:
    modes: dict[str, Any] = {".tar": "w", ".gz": "w:gz", ".xz": "w:xz"}
    with tarfile.open(archive, modes[archive.suffix]) as tar:
        tar.add(source, arcname=top)
    return archive


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz"])
@pytest.mark.parametrize("top", [".", "pets", "deep/pets"])
def test_an_archive_is_its_folder(name: str, top: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "pets")
    expected = open_source(source)
    found = open_source(packed(source, tmp_path / name, top))
    for of_archive, of_folder in ((found.train, expected.train), (found.test, expected.test)):
        assert isinstance(of_archive, Held)
        assert isinstance(of_folder, Held)
        assert torch.equal(of_archive.images, of_folder.images)
        assert torch.equal(of_archive.labels, of_folder.labels)
    assert found.classes == expected.classes
    assert (found.mean, found.std) == (expected.mean, expected.std)


def test_nothing_is_written(tmp_path: Path) -> None:
    archive = packed(folder(tmp_path / "pets"), tmp_path / "a.tar", "pets")
    before = sorted(tmp_path.rglob("*"))
    open_source(archive)
    assert sorted(tmp_path.rglob("*")) == before


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("/etc/evil.png"),
        member("../evil.png"),
        member("a/../../evil.png"),
        member("a/link.png", tarfile.SYMTYPE, "../../evil.png"),
        member("a/link.png", tarfile.SYMTYPE, "/etc/passwd"),
        member("folder", tarfile.SYMTYPE, ".."),
        member("a/hard.png", tarfile.LNKTYPE, "../evil.png"),
        member("a/hard.png", tarfile.LNKTYPE, "/etc/passwd"),
        member("disk.png", tarfile.BLKTYPE),
        member("pipe.png", tarfile.FIFOTYPE),
    ],
)
def test_what_leaves_the_folder_is_refused(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    save(tmp_path / "good.png")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "good.png", arcname="a/good.png")
        tar.addfile(bad, io.BytesIO(b""))
    with pytest.raises(ValueError, match=f"is refused: its member {bad.name!r}"):
        open_source(tmp_path / "a.tar")


def test_links_inside_are_followed(tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "1.png", arcname="a/1.png")
        tar.addfile(member("b/2.png", tarfile.SYMTYPE, "../a/1.png"))
        tar.addfile(member("b/3.png", tarfile.LNKTYPE, "a/1.png"))
    source = open_source(tmp_path / "a.tar")
    assert isinstance(source.train, Held)
    assert len(source.train) == 3
    assert torch.equal(source.train.images[0], source.train.images[2])


@pytest.mark.parametrize(
    "links",
    [
        [member("a/dead.png", tarfile.SYMTYPE, "gone.png")],
        [member("a/dead.png", tarfile.LNKTYPE, "a/gone.png")],
        [member("a/dead.png", tarfile.SYMTYPE, "../a")],
        [member("a/round.png", tarfile.SYMTYPE, "about.png"), member("a/about.png", tarfile.SYMTYPE, "round.png")],
        [member("a/itself.png", tarfile.LNKTYPE, "a/itself.png")],
    ],
    ids=["nowhere", "hard", "folder", "circle", "itself"],
)
def test_links_that_lead_to_no_file_are_left_out_as_in_a_folder(links: list[tarfile.TarInfo], tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for link in links:
            tar.addfile(link)
        tar.add(tmp_path / "1.png", arcname="a/1.png")
    source = open_source(tmp_path / "a.tar")
    assert isinstance(source.train, Held)
    assert len(source.train) == 1


def half(archive: Path) -> None:
    cut = archive.stat().st_size // 2
    if archive.suffix == ".tar":  # in the middle of a file: between two, a shorter archive is as good a one
        with tarfile.open(archive) as tar:
            cut = next(found.offset_data + found.size // 2 for found in tar if found.name.endswith("2.PNG"))
    archive.write_bytes(archive.read_bytes()[:cut])


def text(archive: Path) -> None:
    archive.write_text("not an archive")


@pytest.mark.parametrize("damage", [half, text])
@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.xz", "a.tar"])
def test_damaged_archives_are_named(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    archive = packed(folder(tmp_path / "pets"), tmp_path / name, "pets")
    damage(archive)
    with pytest.raises(ValueError, match=f"{name} cannot be read as a tar archive"):
        open_source(archive)


def test_an_archive_without_images_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no images in .*a\.tar"):
        open_source(packed(tmp_path / "empty", tmp_path / "a.tar", "empty"))


def test_broken_images_are_named_by_archive_and_path(tmp_path: Path) -> None:
    source = folder(tmp_path / "pets")
    (source / "train" / "cat" / "1.png").write_text("not an image")
    archive = packed(source, tmp_path / "a.tar", "pets")
    found = open_source(archive)
    assert isinstance(found.train, Held)
    assert found.train.skipped == (f"{archive}:pets/train/cat/1.png: it is no image of a kind that Pillow knows",)
    with pytest.raises(CorruptImage, match=r"a\.tar:pets/train/cat/1\.png"):
        open_source(archive, strict=True)
