"""Batches of views on the device: images that live there whole, or that worker processes decode and crop."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from entrec.data import Batches, Held, Source, loader
from entrec.training.draws import generator_of
from entrec.views.augment import Augment


class Fed(NamedTuple):
    """One batch: a tensor (k, C, s, s) per view, the images' labels and places in the data set, and files left out."""

    images: tuple[Tensor, ...]
    labels: Tensor
    places: Tensor
    skipped: tuple[str, ...]


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
    ) -> None:
        self.source, self.augment, self.device = source, augment, device
        self.seed, self.rank = seed, rank
        self.batches = Batches(len(source.train), batch_size, seed, rank, ranks)  # type: ignore[arg-type]
        self._held: tuple[Tensor, Tensor] | None = None
        self._loader = None
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
        given = self._from_device() if self._held is not None else self._from_files()
        for number, (images, labels, index, skipped) in enumerate(given, start):
            generator = generator_of(self.device, self.seed, 1, epoch, number, self.rank)
            views = self.augment(images[0], generator) if self._held is not None else self.augment.finish(images, generator)
            yield Fed(views, labels, index, skipped)

    def _from_device(self) -> Iterator[Fed]:
        assert self._held is not None
        images, labels = self._held
        for draws in self.batches:
            index = torch.tensor([place for place, _ in draws], device=self.device)
            yield Fed((images[index],), labels[index], index, ())

    def _from_files(self) -> Iterator[Fed]:
        assert self._loader is not None
        for batch in self._loader:
            # Page-locking makes lists of tuples before torch 2.10.
            on_device = tuple(x.to(self.device, non_blocking=True) for x in batch.images)
            yield Fed(on_device, batch.labels.to(self.device), batch.index.to(self.device), batch.skipped)
