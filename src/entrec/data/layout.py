"""What the paths of images say: which are held out, and which class each is of."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_HELD_OUT = ("test", "val")


class Part(NamedTuple):
    """A split: places in the listing, and the label of each (-1 without labels)."""

    places: list[int]
    labels: Tensor


class Layout(NamedTuple):
    """The splits of a listing and the names of its classes."""

    train: Part
    test: Part | None
    classes: tuple[str, ...]


def layout(names: Sequence[str], labels: bool | None = None) -> Layout:
    """Splits and labels of images from their paths inside a folder, parts separated by `/`.

    With a folder `train`, that is the training split, and `test` (or else `val`) is held out; anything beside them is left
    out. Without, all is for training. A split's own sub-folders are its classes where there are at least two and no image
    lies beside them (`labels=None`), or where that is insisted on (`True`: one is enough), and never with `False`.

    Example:
        >>> layout(["test/cat/1.png", "train/cat/2.png", "train/dog/3.png"])
        Layout(train=Part(places=[1, 2], labels=tensor([0, 1])), test=Part(places=[0], labels=tensor([0])),
               classes=('cat', 'dog'))
    """
    parts = [name.split("/") for name in names]
    tops = {part[0] for part in parts if len(part) > 1}
    splits = {
        split: [i for i, part in enumerate(parts) if part[0] == split and len(part) > 1] for split in ("train", *_HELD_OUT)
    }
    train = splits["train"] if "train" in tops else list(range(len(names)))
    test = next((splits[split] for split in _HELD_OUT if splits[split]), None) if "train" in tops else None
    depth = 1 if "train" in tops else 0
    classes = _classes([parts[i][depth:] for i in train], labels)
    label = {name: place for place, name in enumerate(classes)}

    def part(places: list[int]) -> Part:
        if not classes:
            return Part(places, torch.full((len(places),), -1))
        unknown = sorted({parts[i][depth] for i in places if parts[i][depth] not in label})
        if unknown:
            raise ValueError(f"held-out images of classes that are not in train: {', '.join(unknown[:5])}")
        return Part(places, torch.tensor([label[parts[i][depth]] for i in places], dtype=torch.int64))

    return Layout(part(train), None if test is None else part(test), classes)


def _classes(inside: list[list[str]], labels: bool | None) -> tuple[str, ...]:
    folders = sorted({part[0] for part in inside if len(part) > 1})
    loose = ["/".join(part) for part in inside if len(part) == 1]
    if labels and (loose or not folders):
        found = f"images outside them, such as {loose[0]}" if loose else "no sub-folders"
        raise ValueError(f"labels=True wants one sub-folder of images per class; there are {found}")
    labelled = (len(folders) > 1 and not loose) if labels is None else labels
    return tuple(folders) if labelled else ()
