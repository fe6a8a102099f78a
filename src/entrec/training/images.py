"""Parts of a data set: one view of samples that are several, or some of its samples."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from entrec.data import Held

KNN_IMAGES = 10_000  # of each split that an online kNN score looks at, at the most


class _FirstView(Dataset[tuple[Tensor, int]]):
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.labels, self.paths = getattr(dataset, "labels", None), getattr(dataset, "paths", None)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = self._dataset[index]
        return (image[0] if isinstance(image, tuple) else image), label


def single(dataset: Any) -> Any:
    """The data set with the first view alone of samples that are several: what the encoder that is kept has learnt from."""
    return dataset if isinstance(dataset, Held) else _FirstView(dataset)


def some(dataset: Any, at_most: int) -> Any:
    """At most that many of its samples, always the same; those with a label where it is known which have one."""
    labels = getattr(dataset, "labels", None)
    places = (labels >= 0).nonzero().flatten().cpu() if isinstance(labels, Tensor) else torch.arange(len(dataset))
    places = places if len(places) else torch.arange(len(dataset))
    # Drawn, as classes may stand in a row, or in turns.
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))
    chosen = places[order[:at_most].sort().values]
    if len(chosen) == len(dataset):
        return dataset
    if isinstance(dataset, Held):
        return Held(dataset.images[chosen], dataset.labels[chosen])
    return Subset(dataset, chosen.tolist())
