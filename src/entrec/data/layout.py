"""What the paths of images say: which are held out, and which class each is of."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_SPLIT_OF = {
    "train": "train", "training": "train", "test": "test", "testing": "test", "val": "val", "valid": "val", "validation": "val",
}  # fmt: skip
_HELD_OUT = ("test", "val")
_MANY = 5000  # sub-folders above this number are rather one per person, day or product than one per class


class Part(NamedTuple):
    """A split: places in the listing, and the label of each (-1 without labels)."""

    places: list[int]
    labels: Tensor


class Layout(NamedTuple):
    """The splits of a listing, the names of its classes, and sentences on what the user may not expect."""

    train: Part
    test: Part | None
    classes: tuple[str, ...]
    notices: tuple[str, ...] = ()


def layout(names: Sequence[str], labels: bool | None = None) -> Layout:
    """Splits and labels of images from their paths inside a folder, parts separated by `/`.

    With a folder `train` (or `training`), that is the training split, and `test` (or `testing`, or else `val`, `valid`,
    `validation`) is held out, in capitals or not; anything beside them is left out. Without, all is for training; and so it is
    where `train` stands among folders of other names and no held-out one, for then it is a class. A split's own sub-folders are
    its classes where there are at least two, at most 5,000, and no image lies beside them (`labels=None`), or where that is
    insisted on (`True`: one is enough), and never with `False`. Held-out images outside folders of these classes are an error
    with `True`; with `None`, all held-out images are then without labels, and a notice says so.

    Example:
        >>> layout(["test/cat/1.png", "train/cat/2.png", "train/dog/3.png"])
        Layout(train=Part(places=[1, 2], labels=tensor([0, 1])), test=Part(places=[0], labels=tensor([0])),
               classes=('cat', 'dog'), notices=())
    """
    tops = [_folder(name, 0) for name in names]
    splits = _splits(tops)
    folders = [_folder(name, 1) for name in names] if splits else tops
    train = splits.get("train", list(range(len(names))))
    classes, notices = _classes(names, folders, train, labels)
    held_out = next((splits[split] for split in _HELD_OUT if split in splits), None)
    if held_out is None:
        return Layout(_part(train, folders, classes), None, classes, notices)
    known = set(classes)
    outside = [names[i] for i in held_out if folders[i] not in known] if classes else []
    if outside:
        notices += (_unlabelled(outside, len(held_out), labels),)
    test = _part(held_out, folders, () if outside else classes)
    return Layout(_part(train, folders, classes), test, classes, notices)


def _folder(name: str, depth: int) -> str | None:
    """The folder at this depth of a path, if there is one; lists of all parts of a million paths would take seconds to keep."""
    parts = name.split("/", depth + 1)
    return parts[depth] if len(parts) > depth + 1 else None


def _splits(tops: list[str | None]) -> dict[str, list[int]]:
    """The places of images by the split whose folder they are in; `{}` where the folders at the top are no splits."""
    split_of = {top: _SPLIT_OF.get(top.lower()) for top in tops if top is not None}
    found = {split for split in split_of.values() if split is not None}
    if "train" not in found or (len(found) == 1 and None in split_of.values()):
        return {}
    return {split: [i for i, top in enumerate(tops) if top is not None and split_of[top] == split] for split in found}


def _classes(
    names: Sequence[str], folders: list[str | None], train: list[int], labels: bool | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The classes of the training images, and notices on them."""
    found = tuple(sorted({folder for i in train if (folder := folders[i]) is not None}))
    loose = [names[i] for i in train if folders[i] is None]
    if labels and (loose or not found):
        there = f"images outside them, such as {loose[0]}" if loose else "no sub-folders"
        raise ValueError(f"labels=True wants one sub-folder of images per class; there are {there}")
    labelled = (len(found) > 1 and not loose) if labels is None else labels
    if labelled and labels is None and len(found) > _MANY:
        return (), (f"{len(found)} sub-folders are too many to be taken for classes: no labels, unless labels=True insists",)
    return found if labelled else (), ()


def _part(places: list[int], folders: list[str | None], classes: tuple[str, ...]) -> Part:
    label: dict[str | None, int] = {name: place for place, name in enumerate(classes)}
    return Part(places, torch.tensor([label[folders[i]] if classes else -1 for i in places], dtype=torch.int64))


def _unlabelled(outside: list[str], n: int, labels: bool | None) -> str:
    """The notice that these of n held-out images have no class, or an error where one is insisted on."""
    found = f"held-out images are not in folders of the training classes ({len(outside)} of {n}, such as {outside[0]})"
    if labels:
        raise ValueError(f"labels=True, but {found}; put them into such folders, or say labels=False to do without labels")
    return f"{found}: all of them are taken without labels"
