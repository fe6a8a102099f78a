"""Batches on the device and their views: of images that live there whole, or that worker processes decode and crop."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from entrec.data import Batch, Batches, Held, Source, loader
from entrec.training.draws import seed_of
from entrec.views.augment import Augment
from entrec.views.recipe import View
from entrec.views.shared import Shared, shared


class Fed(NamedTuple):
    """One batch before its views.

    Args:
        crops: one tensor (k, C, s, s) per view, as workers cut them; none where the images are on the device.
        labels: of the images, (k,).
        places: of the images in the data set, (k,).
        seed: of the views.
        skipped: files that were left out, each with the reason.
    """

    crops: tuple[Tensor, ...]
    labels: Tensor
    places: Tensor
    seed: int
    skipped: tuple[str, ...] = ()


class Feed:
    """The batches of any epoch, from any batch on; all that is random follows from the seed, the epoch and the rank.

    Args:
        source: the images.
        augment: from images to views.
        batch_size: of this rank.
        seed: of the order and of the views.
        device: where the views are wanted.
        rank: of this process, among `ranks`.
        workers: processes that decode, where the images are files.
        epochs: of the run: workers go on from one to the next, and do not begin anew with each.
    """

    def __init__(
        self,
        source: Source,
        augment: Augment,
        batch_size: int,
        seed: int,
        device: torch.device,
        rank: int = 0,
        ranks: int = 1,
        workers: int = 0,
        epochs: int = 0,
    ) -> None:
        self.source, self.augment, self.device = source, augment, device
        self.seed, self.rank = seed, rank
        self.batches = Batches(len(source.train), batch_size, seed, rank, ranks, until=epochs)  # type: ignore[arg-type]
        self._whole, self._cropped = _whole, _cropped
        self._shared: tuple[Shared | None, ...] = ()  # of compiled views
        self._held: tuple[Tensor, Tensor] | None = None
        self._loader = None
        self._loading: Iterator[Batch] = iter(())  # what the loader has in work
        self._comes: int | None = None  # the epoch whose first batch is next in there
        self._aside: Any = None  # the stream on which batches are copied
        if isinstance(source.train, Held):
            self._held = (source.train.images.to(device), source.train.labels.to(device))
        else:
            self._loader = loader(source.train, self.batches, crop=augment.crop, workers=workers, pin=device.type == "cuda")

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.batches.per_epoch

    def epoch(self, epoch: int, start: int = 0, weights: Tensor | None = None) -> Iterator[Fed]:
        """The batches of an epoch from number `start` on, drawn in proportion to `weights` if there are any."""
        self.batches.set_epoch(epoch)
        self.batches.set_start(start)
        self.batches.set_weights(weights)
        given = self._from_device() if self._held is not None else self._from_files(epoch)
        for number, fed in enumerate(given, start):
            yield fed._replace(seed=seed_of(self.seed, 1, epoch, number, self.rank))

    def compile(self) -> None:
        """Make views by compiled kernels from now on, one for dozens: they are a third of a small batch's step else."""
        self.augment.prepare(self.device)  # else the first view would be compiled with it, for once
        if self.augment.images == 1:
            recipe, cropped = self.augment.recipe, self._held is None
            self._shared = shared(recipe.views, self.source.channels, cropped, self.device)
        self._whole = torch.compile(_whole, dynamic=False, fullgraph=True)
        self._cropped = torch.compile(_cropped, dynamic=False, fullgraph=True)

    def views(self, crops: tuple[Tensor, ...], places: Tensor, generator: Generator) -> tuple[Tensor, ...]:
        """The views of a batch, on a GPU as its convolutions want them in memory; the generator has the batch's seed."""
        augment, k = self.augment, len(places)
        if self._held is not None:
            given = (self._as_compiled(v, numbers) for v, numbers in enumerate(augment.draw(k, generator)))
            return tuple(self._whole(augment, view, self._held[0], places, numbers) for view, numbers in given)
        looks = enumerate(zip(crops, augment.draw_looks(len(crops), k, generator), strict=True))
        cut = ((v, crop, *self._as_compiled(v, numbers)) for v, (crop, numbers) in looks)
        return tuple(self._cropped(augment, view, v % augment.images, crop, numbers) for v, crop, view, numbers in cut)

    def _as_compiled(self, v: int, numbers: Tensor) -> tuple[View, Tensor]:
        """View v and its numbers, or those of the view that was compiled for it and others."""
        found = self._shared[v] if self._shared else None
        return (self.augment.of(v), numbers) if found is None else (found.view, found.numbers(numbers))

    def _from_device(self) -> Iterator[Fed]:
        assert self._held is not None
        _, labels = self._held
        for places in self.batches.places(self.device):
            yield Fed((), labels[places], places, seed=0)

    def _from_files(self, epoch: int) -> Iterator[Fed]:
        """The batches that are set, from where workers are already if the last epoch was taken to its end."""
        assert self._loader is not None
        here = self._comes == epoch and self.batches.start == 0 and self.batches.weights is None
        goes_on = self.batches.weights is None and epoch + 1 < self.batches.until
        self._comes = None
        if not here:
            self._loading = iter(self._loader)
        loaded = islice(self._loading, len(self.batches))
        yield from map(self._copied, loaded) if self.device.type != "cuda" else self._copied_ahead(loaded)
        self._comes = epoch + 1 if goes_on else None

    def _copied_ahead(self, batches: Iterable[Batch]) -> Iterator[Fed]:
        """Each batch on the GPU, while the one after it is copied there beside the step that takes this one."""
        # One stream for all epochs: free memory is kept for the stream that it was of.
        self._aside = self._aside or torch.cuda.Stream(self.device)
        here, aside = torch.cuda.current_stream(), self._aside
        ready: tuple[Fed, Any] | None = None
        for batch in batches:
            aside.wait_stream(here)  # memory that the steps so far have read may be written to again, and no earlier
            with torch.cuda.stream(aside):
                coming = self._copied(batch), aside.record_event()
            if ready is not None:
                here.wait_event(ready[1])
                yield ready[0]
            ready = coming
        if ready is not None:
            here.wait_event(ready[1])
            yield ready[0]

    def _copied(self, batch: Batch) -> Fed:
        # Page-locking makes lists of tuples before torch 2.10.
        crops = tuple(x.to(self.device, non_blocking=True) for x in batch.images)
        labels, places = (x.to(self.device, non_blocking=True) for x in (batch.labels, batch.index))
        return Fed(crops, labels, places, seed=0, skipped=tuple(batch.skipped))


# A view each, so that views which differ in chance alone are compiled once.
def _whole(augment: Augment, view: View, images: Tensor, places: Tensor, numbers: Tensor) -> Tensor:
    return _laid_out(augment.view(view, images[places], numbers))


def _cropped(augment: Augment, view: View, image: int, crops: Tensor, numbers: Tensor) -> Tensor:
    return _laid_out(augment.look(view, crops, numbers, image))


def _laid_out(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x
