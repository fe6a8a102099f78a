"""Data sets that have a name."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from entrec.data import shapes
from entrec.data.folder import open_folder
from entrec.data.held import Held
from entrec.data.source import IMAGENET_MEAN, IMAGENET_STD, Source, measured

# Mean and standard deviation of the training pixels, as solo-learn's, lightly's and torchvision's recipes have them.
_CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_CIFAR100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
_STL10 = (0.4408, 0.4279, 0.3867), (0.2682, 0.2610, 0.2686)


@lru_cache(maxsize=2)
def open_shapes(image_size: int | None = None, seed: int = 0) -> Source:
    """Wallpapers of one motif each, drawn by us: `entrec.data.shapes`; 4,096 for training and 2,048 held out."""
    side = image_size or 32
    train, test = shapes.render(shapes.TRAIN, 2 * seed, side), shapes.render(shapes.TEST, 2 * seed + 1, side)
    mean, std = measured(train.images)
    held = Held(train.images, train.labels), Held(test.images, test.labels)
    return Source("shapes", *held, shapes.CLASSES, 3, side, mean, std, backbone="tiny")


@lru_cache(maxsize=2)
def open_digits(image_size: int | None = None) -> Source:
    """Handwritten digits of 8 x 8 pixels (scikit-learn's, UCI), enlarged; every fifth of the 1,797 is held out."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the data set digits comes with scikit-learn: pip install scikit-learn") from error
    found = load_digits()
    side = image_size or 32
    pixels = torch.as_tensor(found.images, dtype=torch.float32)[:, None] / 16
    images = functional.interpolate(pixels, size=(side, side), mode="bilinear", align_corners=False)
    images, labels = images.mul(255).round().to(torch.uint8), torch.as_tensor(found.target, dtype=torch.int64)
    held_out = torch.arange(len(images)) % 5 == 4
    train, test = Held(images[~held_out], labels[~held_out]), Held(images[held_out], labels[held_out])
    mean, std = measured(train.images)
    return Source("digits", train, test, tuple("0123456789"), 1, side, mean, std, backbone="tiny")


def open_cifar(name: str, root: Path, image_size: int | None = None) -> Source:
    """CIFAR-10 or CIFAR-100 through torchvision, held in memory."""
    from torchvision import datasets

    kind, (mean, std) = (datasets.CIFAR10, _CIFAR10) if name == "cifar10" else (datasets.CIFAR100, _CIFAR100)
    found = [_fetched(name, root, partial(kind, str(root), train=train, download=True)) for train in (True, False)]
    held = [Held(torch.as_tensor(split.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(split.targets)) for split in found]
    return Source(name, held[0], held[1], tuple(found[0].classes), 3, image_size or 32, mean, std)


def open_stl10(root: Path, image_size: int | None = None) -> Source:
    """STL-10 through torchvision, held in memory (2.9 GB); 5,000 training images have labels, and 100,000 after them none."""
    from torchvision import datasets

    splits = ("train+unlabeled", "test")
    found = [_fetched("stl10", root, partial(datasets.STL10, str(root), split, download=True)) for split in splits]
    held = [Held(torch.as_tensor(split.data), torch.as_tensor(split.labels, dtype=torch.int64)) for split in found]
    return Source("stl10", held[0], held[1], tuple(found[0].classes), 3, image_size or 96, *_STL10)


def open_imagenet(root: Path, image_size: int | None = None, strict: bool = False, labels: bool = True) -> Source:
    """ImageNet (ILSVRC2012) in files: `root` holds `train/` and `val/`, or the archives that torchvision makes them from."""
    from torchvision import datasets

    if not (root / "train").is_dir():
        for split in ("train", "val"):
            _fetched("imagenet", root, partial(datasets.ImageNet, str(root), split))
    found = open_folder(root, labels=labels, strict=strict, image_size=image_size or 224, channels=3)
    return dataclasses.replace(found, name="imagenet", mean=IMAGENET_MEAN, std=IMAGENET_STD)


def _fetched(name: str, root: Path, fetch: Callable[[], Any]) -> Any:
    """What torchvision finds in `root` or downloads to it, or a word on what is missing."""
    try:
        return fetch()
    except (RuntimeError, OSError) as error:  # torchvision's own errors and the network's
        how = "it cannot be downloaded freely: put ILSVRC2012_img_train.tar, _img_val.tar and _devkit_t12.tar.gz there"
        if name != "imagenet":
            how = "downloading it failed: put torchvision's files there"
        raise FileNotFoundError(f"{name} is not in {root}, and {how}, or say with root= where it is ({error})") from error
