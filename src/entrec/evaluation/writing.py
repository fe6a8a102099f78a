"""Features as files that others can read."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from entrec.evaluation.features import Features
from entrec.evaluation.tensors import write_tensors
from entrec.files import appearing, readable, refuse_existing, require_writable

_HEADER = 2**26  # bytes of names that fit into the header of a safetensors file, which may have 100 MB


def write_features(
    features: Features,
    path: Path | str,
    *,
    paths: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Write features, and whose they are, in the format that the suffix names.

    `.npy` holds the values. Beside it NAME.labels.npy holds the labels, where there are any, and NAME.csv says of each row the
    path (or place in the data set), the label (-1 for none) and the class. `.safetensors` holds `features` and `labels`, and
    in its metadata the paths or places as `names` and the names of the classes as `classes` (both JSON lists), and as
    `skipped` the data without a row and why, one per line. More than 64 MiB of names, which a header has no room for, are a
    tensor `names` instead: the bytes of the JSON list.

    Args:
        features: what to write; labels that are all -1 are none.
        path: NAME.npy or NAME.safetensors.
        paths: of every datum of the data set, in its order; rows are called by their places without.
        classes: the names that labels are places in.
        overwrite: replace files of an earlier call.
    Returns: the files that were written.
    """
    path = Path(path)
    check_writable(path, overwrite=overwrite)
    places = list(range(len(features.values))) if features.places is None else features.places.tolist()
    names = [str(place) for place in places] if paths is None else [readable(str(paths[place])) for place in places]
    if path.suffix == ".safetensors":
        return _write_safetensors(features, path, names, classes)
    return _write_npy(features, path, names, classes, "place" if paths is None else "path")


def check_writable(path: Path | str, *, overwrite: bool = False) -> None:
    """Whether `write_features` could write there, which is worth knowing before features are computed.

    Raises:
        ValueError: the suffix is none of the two.
        FileExistsError: a file is there already, and may not be replaced.
        IsADirectoryError: `path` is a folder.
        NotADirectoryError: what should be its folder is a file.
        PermissionError: its folder cannot be written to.
    """
    path = Path(path)
    if path.suffix not in (".npy", ".safetensors"):
        raise ValueError(f"path (--out) must end in .npy or .safetensors, got {str(path)!r}")
    if path.is_dir():
        raise IsADirectoryError(f"path (--out) must be a file, but {path} is a folder")
    if not overwrite:
        refuse_existing(path, *(_beside(path) if path.suffix == ".npy" else ()))
    require_writable(path)


def in_words(skipped: Sequence[str]) -> str:
    """How many images could not be read, and the first few with their reasons."""
    names = "; ".join(map(readable, skipped[:3])) + ("; ..." if len(skipped) > 3 else "")
    return f"{len(skipped)} unreadable image{'s were' if len(skipped) > 1 else ' was'} skipped: {names}"


def _beside(path: Path) -> tuple[Path, Path]:
    """The labels and the list of rows that lie beside NAME.npy."""
    return path.with_name(f"{path.stem}.labels.npy"), path.with_name(f"{path.stem}.csv")


def _write_safetensors(features: Features, path: Path, names: list[str], classes: Sequence[str]) -> tuple[Path, ...]:
    tensors = {"features": features.values}
    if bool((features.labels >= 0).any()):
        tensors["labels"] = features.labels
    facts = {"skipped": "\n".join(map(readable, features.skipped)), "classes": json.dumps([readable(name) for name in classes])}
    text = json.dumps(names)
    if len(text) <= _HEADER:
        facts["names"] = text
    else:
        tensors["names"] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    with appearing(path) as unfinished:
        write_tensors({name: x.cpu().contiguous() for name, x in tensors.items()}, unfinished, facts)
    return (path,)


def _write_npy(features: Features, path: Path, names: list[str], classes: Sequence[str], called: str) -> tuple[Path, ...]:
    beside, listing = _beside(path)
    labels = features.labels.cpu()
    with appearing(path) as unfinished:
        np.save(unfinished, features.values.cpu().numpy())
    with appearing(listing) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([called, "label", "class"])
        for name, label in zip(names, labels.tolist(), strict=True):
            rows.writerow([name, label, readable(classes[label]) if 0 <= label < len(classes) else ""])
    if not bool((labels >= 0).any()):
        beside.unlink(missing_ok=True)  # labels of other features
        return path, listing
    with appearing(beside) as unfinished:
        np.save(unfinished, labels.numpy())
    return path, beside, listing
