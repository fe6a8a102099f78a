from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from entrec.evaluation import Features, write_features

FEATURES = Features(torch.randn(6, 4), torch.arange(6) % 3, ("broken.png", "cut.jpg"))
UNLABELLED = FEATURES._replace(labels=torch.full((6,), -1))


def test_npy_and_its_labels(tmp_path: Path) -> None:
    written = write_features(FEATURES, tmp_path / "new" / "train.npy")
    assert [path.name for path in written] == ["train.npy", "train.labels.npy"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["train.labels.npy", "train.npy"]
    values, labels = (np.load(path) for path in written)
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
        assert file.metadata() == {"skipped": "broken.png\ncut.jpg"}


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_without_labels_there_are_none(suffix: str, tmp_path: Path) -> None:
    assert write_features(UNLABELLED, tmp_path / f"x{suffix}") == (tmp_path / f"x{suffix}",)
    if suffix == ".safetensors":
        assert set(load_file(tmp_path / "x.safetensors")) == {"features"}
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_replaced_unless_asked_for(tmp_path: Path) -> None:
    for name in ("x.npy", "y.safetensors"):
        write_features(FEATURES, tmp_path / name)
        with pytest.raises(FileExistsError, match=r"ask for overwrite=True to replace"):
            write_features(FEATURES, tmp_path / name)
    (tmp_path / "x.npy").unlink()
    with pytest.raises(FileExistsError, match=r"x\.labels\.npy exists"):
        write_features(FEATURES, tmp_path / "x.npy")
    write_features(FEATURES, tmp_path / "x.npy", overwrite=True)


def test_labels_of_other_features_do_not_stay_behind(tmp_path: Path) -> None:
    write_features(FEATURES, tmp_path / "x.npy")
    write_features(UNLABELLED, tmp_path / "x.npy", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


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
    assert len(list(tmp_path.iterdir())) == 2


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.npy or \.safetensors, got '.*x\.csv'"):
        write_features(FEATURES, tmp_path / "x.csv")
