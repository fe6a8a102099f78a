"""One way in for all data: a name, a folder, an archive or a data set."""

import dataclasses
import difflib
from pathlib import Path
from typing import Any, Literal, get_args

from torch.utils.data import Dataset

from entrec import checks
from entrec.data import named
from entrec.data.adapt import open_dataset
from entrec.data.archive import SUFFIXES, open_archive
from entrec.data.folder import open_folder
from entrec.data.pair import open_pair
from entrec.data.source import Source

Name = Literal["shapes", "digits", "cifar10", "cifar100", "stl10", "imagenet"]
NAMES: tuple[str, ...] = get_args(Name)
Data = str | Path | Dataset[Any] | Source | tuple[Dataset[Any], Dataset[Any]] | list[Dataset[Any]]


def open_source(
    data: Data,
    *,
    image_size: int | None = None,
    root: str | Path | None = None,
    labels: bool | None = None,
    strict: bool = False,
    seed: int = 0,
    channels: int | None = None,
) -> Source:
    """Open a data set.

    Args:
        data: a name (`shapes`, `digits`, `cifar10`, `cifar100`, `stl10`, `imagenet`), a folder of images, a `.tar`, `.tar.gz`
            or `.tar.xz` of one, any map-style `Dataset`, a pair `(train, test)` of them, or a `Source`, which is given back.
            A name comes before a folder: say `./shapes` for a folder of that name.
        image_size: side of a full view in pixels, instead of the data set's own.
        root: where named data sets are and are downloaded to; without it `~/.cache/entrec/NAME`.
        labels: of folders, archives and data sets: `None` takes labels where there are any, `True` insists on them, `False`
            does without (`imagenet`: `None` insists).
        strict: whether an image that cannot be decoded stops the run; another takes its place otherwise.
        seed: of the data that are drawn (`shapes`).
        channels: 1 (grey) or 3 (colour), to which folders and archives are decoded instead of what their images look like;
            other data must have as many.
    """
    if image_size is not None:
        checks.whole("image_size", image_size, 8)
    if channels is not None:
        checks.whole("channels", channels, 1)
    if data == "":  # as a variable of a shell is that was not set; as a path it would be the folder that one is in
        raise ValueError(f"data must be one of {', '.join(NAMES)}, or a folder or archive, got an empty word")
    if isinstance(data, str | Path) and data not in NAMES:
        return _open_path(data, image_size, labels, strict, channels)
    if isinstance(data, str):
        found = _open_named(data, image_size, root, labels, strict, seed)
    else:
        found = _open_python(data, image_size, labels)
    if channels not in (None, found.channels):
        raise ValueError(
            f"channels={channels}, but {found.name} has images of {found.channels}: only files can be decoded anew"
        )
    return found


def _open_path(data: str | Path, image_size: int | None, labels: bool | None, strict: bool, channels: int | None) -> Source:
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (colour) for images in files, got {channels}")
    path = Path(data).expanduser()
    if path.is_dir():
        return open_folder(path, image_size=image_size, labels=labels, strict=strict, channels=channels)
    if path.is_file():
        if not path.name.lower().endswith(SUFFIXES):
            raise ValueError(f"{path} is a file, and not an archive ({', '.join(SUFFIXES)}); give the folder it is in")
        return open_archive(path, image_size=image_size, labels=labels, strict=strict, channels=channels)
    raise _not_found(data)


def _open_python(data: Any, image_size: int | None, labels: bool | None) -> Source:
    if isinstance(data, Source):
        return data if image_size is None else dataclasses.replace(data, image_size=image_size)
    if isinstance(data, tuple | list) and any(isinstance(part, Dataset | Source) for part in data):
        return open_pair(data, image_size=image_size, labels=labels)
    if not hasattr(data, "__getitem__") and not isinstance(data, Dataset):
        raise TypeError(f"data must be a name, a path, a Dataset, a pair of them or a Source, got {type(data).__name__}")
    return open_dataset(data, image_size=image_size, labels=labels)


def _open_named(
    name: str, image_size: int | None, root: str | Path | None, labels: bool | None, strict: bool, seed: int
) -> Source:
    if name == "shapes":
        return named.open_shapes(image_size, checks.whole("seed", seed, 0))
    if name == "digits":
        return named.open_digits(image_size)
    folder = Path(root).expanduser() if root is not None else Path.home() / ".cache" / "entrec" / name
    if name == "stl10":
        return named.open_stl10(folder, image_size)
    if name == "imagenet":
        return named.open_imagenet(folder, image_size, strict, labels is not False)
    return named.open_cifar(name, folder, image_size)


def _not_found(data: str | Path) -> Exception:
    if isinstance(data, Path) or any(sign in data for sign in "/\\~."):
        return FileNotFoundError(f"there is no folder or archive {str(data)!r}")
    near = difflib.get_close_matches(data.lower(), NAMES, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ValueError(f"unknown data {data!r}: neither one of {', '.join(NAMES)} nor a folder or archive that exists{hint}")
