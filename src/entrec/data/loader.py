"""From a data set to batches, every random choice a function of the seed, the epoch and the place in it.

Which images a batch holds, and how each is cropped, depends neither on how many workers load it nor on what was loaded
before: a run that resumes at batch b of an epoch sees what it would have seen.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from entrec.data.batches import Draw
from entrec.data.files import CorruptImage, Files, NothingReadable
from entrec.data.held import Held
from entrec.data.source import Image

Crop = Callable[[Image, torch.Generator], tuple[Tensor, ...]]
_Sample = tuple[Image, int, int]  # an image or its crops, its label, and its place in the data set
_IN_A_ROW = 100  # files that may be broken one after another before it is the disk that is


class Batch(NamedTuple):
    """Images that were loaded together."""

    images: Tensor | tuple[Tensor, ...]  # uint8 (k, C, H, W); one such per crop, or per view where samples are several
    labels: Tensor  # int64 (k,), -1 where there is none
    index: Tensor  # type: ignore[assignment]  # int64 (k,), places in the data set; not tuple's method
    skipped: tuple[str, ...]  # files that could not be decoded, each with the reason; others stand in their places


def loader(
    dataset: Dataset[tuple[Image, int]],
    batches: Iterable[list[Draw]],
    *,
    crop: Crop | None = None,
    workers: int = 0,
    pin: bool = False,
) -> DataLoader[Batch]:
    """Load batches of a data set.

    In the place of an image that cannot be decoded stands the next one of the data set that can be and is not in the batch
    already (if all are: the next one), drawn with the same seed. So batches keep their sizes, on all ranks.

    Args:
        dataset: map-style, of `(image, label)`, as a `Source` has them.
        batches: which images: `Batches`, or `in_order` for evaluation.
        crop: `crop(image, generator)` gives a tuple of uint8 crops, one per view; the generator is seeded by the draw. Without
            it, images must have one size, and come as they are.
        workers: processes that decode and crop; 0 works in this one. The batches are the same.
        pin: whether to put batches into page-locked memory, from which copies to a GPU need not be waited for.
    """
    return DataLoader(
        _Drawn(dataset, crop),  # which loads a whole batch at once, so that there is nothing to collate
        batch_sampler=batches,
        collate_fn=_as_it_is,
        num_workers=workers,
        pin_memory=pin,
        persistent_workers=workers > 0,
        generator=torch.Generator(),  # else it would draw a number from the caller's
    )


class _Drawn(Dataset[Batch]):
    """A data set asked for the draws of a batch, all at once."""

    def __init__(self, dataset: Dataset[tuple[Image, int]], crop: Crop | None) -> None:
        self.dataset, self.crop = dataset, crop

    def __getitems__(self, draws: list[Draw]) -> Batch:
        if isinstance(self.dataset, Held) and self.crop is None:
            index = torch.tensor([place for place, _ in draws])
            return Batch(self.dataset.images[index], self.dataset.labels[index], index, ())
        samples: list[_Sample] = []
        taken = {place for place, _ in draws}
        broken: dict[int, str] = {}
        for place, seed in draws:
            samples.append(self._readable(place, seed, taken, broken))
            taken.add(samples[-1][2])
        images, labels, places = zip(*samples, strict=True)
        return Batch(_stacked(images), torch.tensor(labels), torch.tensor(places), tuple(broken.values()))

    def _readable(self, place: int, seed: int, taken: set[int], broken: dict[int, str]) -> _Sample:
        """The sample at this place, or else the next that can be read; `broken` gains those that cannot, and why."""
        failed: list[CorruptImage] = []
        for candidate in self._candidates(place, taken):
            if candidate in broken:
                continue
            try:
                return self._sample(candidate, seed)
            except CorruptImage as error:
                if error.strict:
                    raise
                broken[candidate] = error.described
                failed.append(error)
            if len(failed) == _IN_A_ROW:
                break
        raise NothingReadable(_in_a_row(failed))

    def _candidates(self, place: int, taken: set[int]) -> Iterator[int]:
        """The place and those after it, round to its beginning: first the ones that are not in the batch, then the others."""
        yield place
        n = len(self.dataset)  # type: ignore[arg-type]
        for in_batch in (False, True):
            yield from (i for step in range(1, n) if ((i := (place + step) % n) in taken) == in_batch)

    def _sample(self, place: int, seed: int) -> _Sample:
        with nullcontext() if isinstance(self.dataset, Held | Files) else _seeded(seed):  # others may draw random numbers
            image, label = self.dataset[place]
        if self.crop is not None:
            image = self.crop(image, torch.Generator().manual_seed(seed))
        return image, label, place


def _in_a_row(failed: list[CorruptImage]) -> str:
    """That so many images could not be decoded, and why the first could not: if it could not be opened, the disk may be why."""
    first = failed[0]
    named = ", ".join(error.name for error in failed[:3]) + (", ..." if len(failed) > 3 else "")
    disk = ": is the disk there?" if isinstance(first.__cause__, OSError) and first.__cause__.errno else "."
    return f"none of {len(failed)} images in a row could be decoded ({named}){disk} Of the first: {first.why}"


def _stacked(images: tuple[Image, ...]) -> Tensor | tuple[Tensor, ...]:
    views = [image if isinstance(image, tuple) else (image,) for image in images]
    if len({len(view) for view in views}) > 1:
        raise ValueError(f"samples of one batch must have as many views each, got {sorted({len(view) for view in views})}")
    columns = list(zip(*views, strict=True))
    for column in columns:
        if len(shapes := {tuple(image.shape) for image in column}) > 1:
            raise ValueError(f"images of one batch must have one size: crop them; got {sorted(shapes)[:4]}")
    stacked = tuple(torch.stack(column) for column in columns)
    return stacked if isinstance(images[0], tuple) else stacked[0]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Python's, NumPy's and torch's global generators seeded, and left as they were."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which would reseed GPUs too
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _as_it_is(batch: Any) -> Any:
    return batch
