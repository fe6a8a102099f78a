"""A folder of images, nested as it may be: with or without splits, with or without labels."""

import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch

from entrec.data import index
from entrec.data.files import EXTENSIONS, CorruptImage, Files
from entrec.data.held import Held
from entrec.data.layout import Part, layout
from entrec.data.source import IMAGENET_MEAN, IMAGENET_STD, Source, measured, small_size, view_side

_HELD_BYTES = 2**30  # what is loaded whole
_LOOKED_AT = 64  # files per split whose headers say how large and how colourful the images are
_GREY_MEAN, _GREY_STD = (sum(IMAGENET_MEAN) / 3,), (sum(IMAGENET_STD) / 3,)


class Listing(NamedTuple):
    """Images by name inside their folder (parts separated by `/`), by path, and by their bytes where those are in memory."""

    title: str
    names: Sequence[str]
    paths: Sequence[str]
    contents: Sequence[bytes] | None = None


def open_folder(
    folder: Path,
    *,
    image_size: int | None = None,
    labels: bool | None = None,
    strict: bool = False,
    channels: int | None = None,
) -> Source:
    """The images in a folder and all its sub-folders, sorted by path; see `entrec.data.layout.layout` for splits and labels.

    Hidden files and folders are passed over, and so are the run directories of entrec; `from_listing` says what is loaded.
    """
    if is_run(folder):
        raise ValueError(f"{folder} is a run directory of entrec, not a folder of images")
    names = listed(folder)
    root = os.path.join(folder, "")
    listing = Listing(str(folder), names, [root + name for name in names])  # a million of pathlib's paths would take seconds
    return from_listing(listing, image_size, labels, strict, channels)


def listed(folder: Path) -> list[str]:
    """The images under a folder as sorted paths inside it, with `/` between parts; no file is opened or asked for its size.

    A large folder is listed once: after that `entrec.data.index` has the list, for as long as nothing changes.
    """
    root = os.path.join(os.path.realpath(folder), "")
    names = index.read(root)
    if names is None:
        began = time.time_ns()
        names, stamps = _walked(root)
        index.write(root, names, stamps, began)
    return names


def _walked(root: str) -> tuple[list[str], dict[str, index.Stamp]]:
    """The images under a folder, sorted, and the stamps of all that decides which they are.

    A folder's stamp is taken before it is looked at in any way: a change in between then shows at the next start. Links come
    last, so that a folder is found under its own name where it has one; each is followed once, for they may make a circle.
    """
    names: list[str] = []
    stamps: dict[str, index.Stamp] = {}
    pending, followed = deque([("", os.path.dirname(root))]), set[str]()
    while pending:
        inside, real = pending.pop()
        stamps[inside] = index.stamp(root + inside)
        real = real or os.path.realpath(root + inside)
        if real in followed or is_run(Path(real)):
            continue
        followed.add(real)
        found = _scanned(root + inside)
        names += [inside + name for name in found.images]
        stamps |= dict.fromkeys((inside + name for name in found.loose_ends), None)
        pending.extend((f"{inside}{name}/", os.path.join(real, name)) for name in sorted(found.folders))
        pending.extendleft((f"{inside}{name}/", "") for name in sorted(found.links))
    return sorted(names), stamps


class _Scan(NamedTuple):
    """What lies in a folder: images, folders, links to folders, and links to nothing, which may be a folder another day."""

    images: list[str]
    folders: list[str]
    links: list[str]
    loose_ends: list[str]


def _scanned(path: str) -> _Scan:
    found = _Scan([], [], [], [])
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                (found.links if entry.is_symlink() else found.folders).append(entry.name)
            elif entry.name.lower().endswith(EXTENSIONS):
                found.images.append(entry.name)
            elif entry.is_symlink() and not os.path.isfile(entry.path):
                found.loose_ends.append(entry.name)
    return found


def is_run(folder: Path) -> bool:
    """Whether a folder is the run directory of an entrec training."""
    return (folder / "config.yaml").is_file() and (folder / "checkpoints").is_dir()


def from_listing(
    listing: Listing,
    image_size: int | None = None,
    labels: bool | None = None,
    strict: bool = False,
    channels: int | None = None,
) -> Source:
    """The source of a listing of images.

    The headers of at most 64 images per split, evenly spaced, say what they are. If all are grey, images have one channel,
    else three, unless `channels` says how many. If all have one size of at most 96 pixels a side and the whole takes at most
    1 GiB, it is loaded into memory (unless another size turns up on the way), without the files that cannot be decoded, and
    the mean and standard deviation of the training pixels are measured. Otherwise files are decoded when they are needed,
    ImageNet's mean and standard deviation are taken (their averages for grey images), and a view's side is the median
    image's, 224 at the most.
    """
    if not listing.names:
        raise FileNotFoundError(
            f"no images in {listing.title} or its sub-folders; looked for {', '.join(EXTENSIONS)} (any case)"
        )
    found = layout(listing.names, labels)
    splits = [_files(listing, part, strict) for part in (found.train, found.test) if part is not None]
    looks = [look for files in splits for look in _looked_at(files)]
    channels = channels or (1 if looks and all(grey for _, _, grey in looks) else 3)
    for files in splits:
        files.channels = channels
    sizes = [(height, width) for height, width, _ in looks]
    size = small_size(sizes)
    held = None if size is None else _loaded(splits, size)
    if held is not None:
        side = min(held[0].images.shape[2:])
        mean, std = measured(held[0].images)
    else:
        side = view_side(sizes)
        mean, std = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else (_GREY_MEAN, _GREY_STD)
    train, *rest = held or splits
    test = rest[0] if rest else None
    name, side = Path(listing.title).resolve().name, image_size or side
    return Source(name, train, test, found.classes, channels, side, mean, std, notices=found.notices)


def _files(listing: Listing, part: Part, strict: bool) -> Files:
    contents = None if listing.contents is None else [listing.contents[i] for i in part.places]
    return Files([listing.paths[i] for i in part.places], part.labels, strict=strict, contents=contents)


def _looked_at(files: Files) -> list[tuple[int, int, bool]]:
    places = range(0, len(files), -(-len(files) // _LOOKED_AT))
    return [look for place in places if (look := files.look(place)) is not None]


def _loaded(splits: Sequence[Files], size: tuple[int, int]) -> list[Held] | None:
    """The splits in memory, or `None` where they are too large or not of one size after all."""
    if sum(map(len, splits)) * splits[0].channels * size[0] * size[1] > _HELD_BYTES:
        return None
    held = [_load(files, size) for files in splits]
    return [split for split in held if split is not None] if None not in held else None


def _load(files: Files, size: tuple[int, int]) -> Held | None:
    images = torch.empty(len(files), files.channels, *size, dtype=torch.uint8)

    def load(places: range) -> tuple[dict[int, CorruptImage], list[int]]:
        """Fill in these images; return the corrupt ones by place, and the places of those of another size."""
        corrupt, other = {}, []
        for place in places:
            try:
                image = files.decoded(place)
            except CorruptImage as error:
                if error.strict:
                    raise
                corrupt[place] = error
                continue
            if image.shape != images.shape[1:]:
                other.append(place)
            else:
                images[place] = image
        return corrupt, other

    step = 500
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        reports = list(pool.map(load, [range(i, min(i + step, len(files))) for i in range(0, len(files), step)]))
    if any(other for _, other in reports):
        return None
    corrupt = {place: error for found, _ in reports for place, error in found.items()}
    if len(corrupt) == len(files):
        raise CorruptImage(files.paths[0], f"{corrupt[0].why}; and none of all {len(files)} images of this split can be")
    keep = torch.ones(len(files), dtype=torch.bool)
    keep[list(corrupt)] = False
    skipped = tuple(error.described for error in corrupt.values())
    paths = tuple(path for path, kept in zip(files.paths, keep.tolist(), strict=True) if kept)
    return Held(images[keep] if corrupt else images, files.labels[keep], skipped, paths)
