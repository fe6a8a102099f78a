"""Features of a whole data set, from a module that is left as it was."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from entrec import checks
from entrec.data.files import CorruptImage

Prepare = Callable[[Tensor], Tensor]


class Features(NamedTuple):
    """The features of n data, in the data set's order."""

    values: Tensor  # float32 (n, d)
    labels: Tensor  # int64 (n,), -1 where there is none
    skipped: tuple[str, ...] = ()  # data that could not be read and have no row, by path, or by index where they have none


def extract(
    module: nn.Module,
    dataset: Any,
    prepare: Prepare,
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    workers: int = 0,
) -> Features:
    """The features that `module` gives to each image of a data set, in eval mode and without gradients.

    The training flag of every submodule is put back afterwards, also after an error, and no buffer changes: BatchNorm uses its
    running statistics and leaves them alone.

    Args:
        module: images to features (k, d); it must be on `device` already.
        dataset: whole sets in memory, with `images` (n, C, H, W) and `labels` (n,), are sliced; any other map-style data set
            gives (image (C, H, W), label) by index. Where the image is None or raises `CorruptImage` (and not strictly), it
            could not be read: it is skipped and named.
        prepare: from a batch of images on the device to the module's input, the same on every call. Images of several sizes
            are prepared one at a time.
        batch_size: images per call of the module.
        device: where the module runs.
        workers: processes that read the data, for sets that are not in memory.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> images = torch.arange(12, dtype=torch.uint8).reshape(3, 1, 2, 2)
        >>> extract(nn.Flatten(), TensorDataset(images, torch.tensor([0, 1, 0])), lambda x: x / 255).values.shape
        torch.Size([3, 4])
    """
    batch_size, workers = checks.whole("batch_size", batch_size, at_least=1), checks.whole("workers", workers, at_least=0)
    if len(dataset) == 0:
        raise ValueError("dataset must hold at least one image, got none")
    held = isinstance(getattr(dataset, "images", None), Tensor) and isinstance(getattr(dataset, "labels", None), Tensor)
    batches = _slices(dataset, batch_size) if held else _read(dataset, batch_size, workers)
    values: list[Tensor] = []
    labels: list[Tensor] = []
    skipped = list(getattr(dataset, "skipped", ())) if held else []
    # Not inference mode: what a module caches in its forward pass (position tables) could not be trained with afterwards.
    with evaluating(module), torch.no_grad():
        for batch in batches:
            skipped += batch.skipped
            if len(batch.images) > 0:
                values.append(_features(module, _prepared(batch.images, prepare, device)))
                labels.append(batch.labels)
    if not values:
        raise ValueError(f"dataset must hold at least one image that can be read, but none of its {len(dataset)} can")
    return Features(torch.cat(values), torch.cat(labels), tuple(skipped))


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Eval mode for the modules, and afterwards the mode that each of their submodules was in."""
    training = {part: part.training for module in modules for part in module.modules()}
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for part, mode in training.items():
            part.training = mode  # not train(mode), which would also change the submodules


class _Batch(NamedTuple):
    images: Tensor | Sequence[Tensor]
    labels: Tensor
    skipped: Sequence[str]


def _slices(dataset: Any, batch_size: int) -> Iterator[_Batch]:
    for images, labels in zip(dataset.images.split(batch_size), dataset.labels.split(batch_size), strict=True):
        yield _Batch(images, labels.to("cpu", torch.int64), ())


class _Readable(Dataset[tuple[Any, int, str]]):
    """A data set's samples with their names, and None for an image that is corrupt, unless that must stop the run."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.names = getattr(dataset, "paths", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, int, str]:
        try:
            image, label = self.dataset[index]
        except CorruptImage as error:
            if error.strict:
                raise
            return None, -1, error.name
        return image, int(label), str(index if self.names is None else self.names[index])


def _read(dataset: Any, batch_size: int, workers: int) -> Iterator[_Batch]:
    for samples in DataLoader(_Readable(dataset), batch_size, num_workers=workers, collate_fn=list):
        kept = [(_checked(image), label) for image, label, _ in samples if image is not None]
        labels = torch.tensor([label for _, label in kept], dtype=torch.int64)
        yield _Batch([image for image, _ in kept], labels, [name for image, _, name in samples if image is None])


def _checked(image: Any) -> Tensor:
    if not isinstance(image, Tensor) or image.ndim != 3:
        got = f"a tensor of shape {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise TypeError(f"dataset must give images as tensors of shape (C, H, W), got {got}: of several views, choose one")
    return image


def _prepared(images: Tensor | Sequence[Tensor], prepare: Prepare, device: torch.device | str) -> Tensor:
    if isinstance(images, Tensor):
        return prepare(images.to(device))
    if len({image.shape for image in images}) == 1:
        return prepare(torch.stack(list(images)).to(device))
    return torch.cat([prepare(image[None].to(device)) for image in images])


def _features(module: nn.Module, images: Tensor) -> Tensor:
    values: Tensor = module(images)
    checks.batch("the module's output", values)
    if len(values) != len(images):
        raise ValueError(f"the module must give a row to each of {len(images)} images, got {len(values)}")
    return values.to("cpu", torch.float32)


def check_pair(train: Features, test: Features) -> None:
    """Both are features with labels, of the same width."""
    for name, features in (("train", train), ("test", test)):
        checks.batch(f"{name}.values", features.values)
        if features.labels.shape != features.values.shape[:1]:
            shapes = f"{tuple(features.labels.shape)} for values of shape {tuple(features.values.shape)}"
            raise ValueError(f"{name}.labels must have one label per row, got shape {shapes}")
        without = int((features.labels < 0).sum())
        if without:
            raise ValueError(f"{name}.labels must all be 0 or more, but {without} of {len(features.labels)} are not: no label?")
    checks.alike("train.values", train.values, "test.values", test.values, rows=False)
