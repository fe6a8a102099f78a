import csv
import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from entrec.evaluation import Features, write_features, writing
from entrec.evaluation.writing import check_writable, in_words

FEATURES = Features(torch.randn(6, 4), torch.arange(6) % 3, ("broken.png", "cut.jpg"))
UNLABELLED = FEATURES._replace(labels=torch.full((6,), -1))


def test_npy_and_its_labels(tmp_path: Path) -> None:
    written = write_features(FEATURES, tmp_path / "new" / "train.npy")
    assert [path.name for path in written] == ["train.npy", "train.labels.npy", "train.csv"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["train.csv", "train.labels.npy", "train.npy"]
    values, labels = (np.load(path) for path in written[:2])
    assert values.dtype == np.float32
    assert labels.dtype == np.int64
    assert (values == FEATURES.values.numpy()).all()
    assert (labels == FEATURES.labels.numpy()).all()


def test_safetensors(tmp_path: Path) -> None:
    (path,) = write_features(FEATURES._replace(values=torch.randn(4, 6).T), str(tmp_path / "train.safetensors"))
    found = load_file(path)
    assert set(found) == {"features", "labels"}
    assert torch.equal(found["labels"], FEATURES.labels)
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    assert facts == {"skipped": "broken.png\ncut.jpg", "classes": "[]", "names": json.dumps(["0", "1", "2", "3", "4", "5"])}


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_without_labels_there_are_none(suffix: str, tmp_path: Path) -> None:
    written = write_features(UNLABELLED, tmp_path / f"x{suffix}")
    assert [path.name for path in written] == (["x.npy", "x.csv"] if suffix == ".npy" else ["x.safetensors"])
    if suffix == ".safetensors":
        assert set(load_file(tmp_path / "x.safetensors")) == {"features"}
    assert sorted(tmp_path.iterdir()) == sorted(written)


def test_nothing_is_replaced_unless_asked_for(tmp_path: Path) -> None:
    for name in ("x.npy", "y.safetensors"):
        write_features(FEATURES, tmp_path / name)
        with pytest.raises(FileExistsError, match=r"ask for overwrite=True"):
            write_features(FEATURES, tmp_path / name)
    (tmp_path / "x.npy").unlink()
    with pytest.raises(FileExistsError, match=r"x\.labels\.npy and .*x\.csv exist"):
        write_features(FEATURES, tmp_path / "x.npy")
    write_features(FEATURES, tmp_path / "x.npy", overwrite=True)


def test_labels_of_other_features_do_not_stay_behind(tmp_path: Path) -> None:
    write_features(FEATURES, tmp_path / "x.npy")
    write_features(UNLABELLED, tmp_path / "x.npy", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "x.npy"]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_features(FEATURES, tmp_path / "x.npy")
    old = (tmp_path / "x.npy").read_bytes()

    def full(path: Path, values: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="disk full"):
        write_features(UNLABELLED, tmp_path / "x.npy", overwrite=True)
    assert (tmp_path / "x.npy").read_bytes() == old
    assert len(list(tmp_path.iterdir())) == 3


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.npy or \.safetensors, got '.*x\.csv'"):
        write_features(FEATURES, tmp_path / "x.csv")


PATHS = ["a/0.png", "b/[1], 1.png", "a/2.png", "c/3\n.png", 'a/"4".png', "b/5.png", "a/6.png", "b/7.png"]
PLACED = FEATURES._replace(places=torch.tensor([0, 1, 3, 4, 5, 7]), labels=torch.tensor([0, 1, -1, 0, 1, 2]))


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_the_list_beside_npy_says_whose_each_row_is(tmp_path: Path) -> None:
    *_, listing = write_features(PLACED, tmp_path / "x.npy", paths=PATHS, classes=("ape", "bee"))
    assert rows(listing) == [
        ["path", "label", "class"],
        ["a/0.png", "0", "ape"],
        ["b/[1], 1.png", "1", "bee"],
        ["c/3\n.png", "-1", ""],
        ['a/"4".png', "0", "ape"],
        ["b/5.png", "1", "bee"],
        ["b/7.png", "2", ""],
    ]


def test_without_paths_rows_are_called_by_their_places(tmp_path: Path) -> None:
    *_, listing = write_features(PLACED, tmp_path / "x.npy", classes=("ape", "bee", "cat"))
    assert rows(listing)[0] == ["place", "label", "class"]
    assert [row[0] for row in rows(listing)[1:]] == ["0", "1", "3", "4", "5", "7"]
    assert rows(listing)[-1] == ["7", "2", "cat"]


def test_safetensors_name_their_rows(tmp_path: Path) -> None:
    (path,) = write_features(PLACED, tmp_path / "x.safetensors", paths=PATHS, classes=("ape", "bee"))
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    assert json.loads(facts["names"]) == [PATHS[i] for i in (0, 1, 3, 4, 5, 7)]
    assert json.loads(facts["classes"]) == ["ape", "bee"]


def test_more_names_than_a_header_takes_are_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_HEADER", 20)
    (path,) = write_features(PLACED, tmp_path / "x.safetensors", paths=PATHS)
    assert json.loads(bytes(load_file(path)["names"].tolist())) == [PATHS[i] for i in (0, 1, 3, 4, 5, 7)]
    with safe_open(path, "pt") as file:
        assert "names" not in file.metadata()


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_names_that_are_not_utf_8_are_written_with_escapes(suffix: str, tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.png")
    features = Features(torch.zeros(1, 2), torch.tensor([0]), (odd,), torch.tensor([0]))
    *_, last = write_features(features, tmp_path / f"x{suffix}", paths=[odd], classes=[odd])
    if suffix == ".npy":
        assert rows(last)[1] == [r"caf\udce9.png", "0", r"caf\udce9.png"]
        return
    with safe_open(last, "pt") as file:
        facts = file.metadata()
    assert json.loads(facts["names"]) == [r"caf\udce9.png"]
    assert facts["skipped"] == r"caf\udce9.png"


def no_room(**_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_where_nothing_can_be_written_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "x.csv").touch()
    check_writable(tmp_path / "new" / "folder" / "x.npy")
    check_writable(tmp_path / "x.safetensors")
    check_writable(tmp_path / "x.npy", overwrite=True)
    with pytest.raises(FileExistsError, match=r"x\.csv exists"):
        check_writable(tmp_path / "x.npy")
    with pytest.raises(NotADirectoryError, match=r"x\.npy cannot be written: .*file is no folder"):
        check_writable(tmp_path / "file" / "deep" / "x.npy")
    with pytest.raises(IsADirectoryError, match=r"must be a file, but .*folder\.npy is a folder"):
        check_writable(tmp_path / "folder.npy", overwrite=True)
    with pytest.raises(ValueError, match=r"path \(--out\) must end in \.npy or \.safetensors"):
        check_writable(tmp_path / "x.csv")
    monkeypatch.setattr("entrec.files.NamedTemporaryFile", no_room)
    with pytest.raises(OSError, match=r"y\.npy cannot be written: in .* no file can be made \(No space left on device\)"):
        check_writable(tmp_path / "y.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.npy", "x.csv"]


def test_skipped_images_in_words() -> None:
    assert in_words(["a.png"]) == "1 unreadable image was skipped: a.png"
    assert in_words(["a", "b", "c"]) == "3 unreadable images were skipped: a; b; c"
    assert in_words(["a", "b", "c", "d"]) == "4 unreadable images were skipped: a; b; c; ..."
