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
    skipped: tuple[str, ...] = ()  # data that could not be read and have no row: their paths, or else places, and the reasons
    places: Tensor | None = None  # int64 (n,), where in the data set each row's datum is; `extract` always says it


def extract(
    module: nn.Module,
    dataset: Any,
    prepare: Prepare,
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    workers: int = 0,
    keep_on_device: bool = False,
) -> Features:
    """The features that `module` gives to each image of a data set, in eval mode and without gradients.

    The training flag of every submodule is put back afterwards, also after an error, and no buffer changes: BatchNorm uses its
    running statistics and leaves them alone.

    Args:
        module: images to features (k, d); it must be on `device` already.
        dataset: whole sets in memory, with `images` (n, C, H, W) and `labels` (n,), are sliced; any other map-style data set
            gives (image (C, H, W), label) by index. Where the image is None or raises `CorruptImage` (and not strictly), it
            could not be read: it is skipped and named.
        prepare: from a batch of images (k, C, H, W) to the module's input, the same on every call. Sets in memory are prepared
            in batches on the device. Other images, which may be large photos, are prepared one at a time where they are read,
            so that no more than one of them is held at its full size: with workers, by a `prepare` that can be sent to them
            (`entrec.views.augment.Plain` can).
        batch_size: images per call of the module.
        device: where the module runs.
        workers: processes that read and prepare the data, for sets that are not in memory.
        keep_on_device: leave the values where they were computed, for scores that are to be computed there too. Otherwise they
            come to the CPU. Labels and places are there anyway.

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
    batches = _slices(dataset, batch_size, prepare, device) if held else _read(dataset, batch_size, prepare, workers)
    values: list[Tensor] = []
    found: list[_Batch] = []
    skipped = list(getattr(dataset, "skipped", ())) if held else []
    # Not inference mode: what a module caches in its forward pass (position tables) could not be trained with afterwards.
    with evaluating(module), torch.no_grad():
        for batch in batches:
            skipped += batch.skipped
            if batch.images is not None:
                values.append(_features(module, batch.images.to(device), device if keep_on_device else "cpu"))
                found.append(batch._replace(images=None))
    if not values:
        raise ValueError(
            f"dataset must hold at least one image that can be read, but none of its {len(dataset)} can: {skipped[0]}"
        )
    labels, places = torch.cat([batch.labels for batch in found]), torch.cat([batch.places for batch in found])
    return Features(torch.cat(values), labels, tuple(skipped), places)


def labelled(features: Features, name: str = "features") -> Features:
    """The rows that have a label (0 or more).

    Raises:
        ValueError: there is no such row; `name` says of what.

    Example:
        >>> labelled(Features(torch.eye(3), torch.tensor([0, -1, 1]))).values.shape
        torch.Size([2, 3])
    """
    rows = (features.labels >= 0).nonzero()[:, 0]
    if len(rows) == len(features.labels) > 0:
        return features
    if len(rows) == 0:
        raise ValueError(f"{name} must have labels, but none of its {len(features.labels)} rows has one (0 or more)")
    places = None if features.places is None else features.places[rows.to(features.places.device)]
    return Features(features.values[rows.to(features.values.device)], features.labels[rows], features.skipped, places)


def require_numbers(features: Features, module: nn.Module, name: str = "features") -> None:
    """All features are numbers, as scores of others would look like any.

    Args:
        features: of a data set.
        module: that they come from, whose weights may be why.
        name: of the features, for the message.

    Raises:
        ValueError: some rows hold NaN or infinity.
    """
    bad, rows = int((~features.values.isfinite().all(dim=1)).sum()), len(features.values)
    if bad:
        raise ValueError(f"{bad} of the {rows} rows of {name} are NaN or infinite, {_likely_cause(module)}")


def _likely_cause(module: nn.Module) -> str:
    """Of features that are no numbers, in words."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    broken = [key for key, x in tensors if not bool(x.isfinite().all())]
    if not broken:
        return "though the encoder's weights are all finite: do its activations overflow, or are images no numbers?"
    named = ", ".join(broken[:3]) + (", ..." if len(broken) > 3 else "")
    return (
        f"and so are {len(broken)} of the encoder's {len(tensors)} tensors ({named}): its training has probably diverged. Take "
        "an earlier checkpoint, or train again with a lower learning rate (--rate)"
    )


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
    images: Tensor | None  # prepared; None where none could be read
    labels: Tensor
    places: Tensor
    skipped: Sequence[str]


def _slices(dataset: Any, batch_size: int, prepare: Prepare, device: torch.device | str) -> Iterator[_Batch]:
    places = torch.arange(len(dataset)).split(batch_size)
    for images, labels, at in zip(dataset.images.split(batch_size), dataset.labels.split(batch_size), places, strict=True):
        yield _Batch(prepare(images.to(device)), labels.to("cpu", torch.int64), at, ())


class _Sample(NamedTuple):
    image: Tensor | None  # prepared; None where it is corrupt
    label: int
    place: int
    name: str


class _Readable(Dataset[_Sample]):
    """A data set's samples, prepared, with their names; an image that is corrupt is None, unless that must stop the run."""

    def __init__(self, dataset: Any, prepare: Prepare) -> None:
        self.dataset, self.prepare = dataset, prepare
        self.names = getattr(dataset, "paths", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> _Sample:
        name = str(index if self.names is None else self.names[index])
        try:
            image, label = self.dataset[index]
        except CorruptImage as error:
            if error.strict:
                raise
            return _Sample(None, -1, index, error.described)
        if image is None:
            return _Sample(None, -1, index, name)
        with torch.no_grad():  # in a worker nobody has said so yet
            return _Sample(self.prepare(_checked(image)[None])[0], int(label), index, name)


def _read(dataset: Any, batch_size: int, prepare: Prepare, workers: int) -> Iterator[_Batch]:
    return iter(DataLoader(_Readable(dataset, prepare), batch_size, num_workers=workers, collate_fn=_together))


def _together(samples: Sequence[_Sample]) -> _Batch:
    kept = [(sample.image, sample.label, sample.place) for sample in samples if sample.image is not None]
    images = torch.stack([image for image, _, _ in kept]) if kept else None
    labels, places = (torch.tensor([row[i] for row in kept], dtype=torch.int64) for i in (1, 2))
    return _Batch(images, labels, places, [sample.name for sample in samples if sample.image is None])


def _checked(image: Any) -> Tensor:
    if not isinstance(image, Tensor) or image.ndim != 3:
        got = f"a tensor of shape {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise TypeError(f"dataset must give images as tensors of shape (C, H, W), got {got}: of several views, choose one")
    return image


def _features(module: nn.Module, images: Tensor, where: torch.device | str) -> Tensor:
    values: Tensor = module(images)
    checks.batch("the module's output", values)
    if len(values) != len(images):
        raise ValueError(f"the module must give a row to each of {len(images)} images, got {len(values)}")
    return values.to(where, torch.float32)


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
