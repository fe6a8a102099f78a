"""Parts of a data set: one view of samples that are several, or some of its samples."""

from typing import Any

from torch import Tensor
from torch.utils.data import Dataset, Subset

from entrec.data import Held


class _FirstView(Dataset[tuple[Tensor, int]]):
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = self._dataset[index]
        return (image[0] if isinstance(image, tuple) else image), label


def single(dataset: Any) -> Any:
    """The data set with the first view alone of samples that are several: what the encoder that is kept has learnt from."""
    return dataset if isinstance(dataset, Held) else _FirstView(dataset)


def some(dataset: Any, at_most: int) -> Any:
    """At most that many of its samples, at equal distances."""
    every = -(-len(dataset) // at_most)
    if every == 1:
        return dataset
    if isinstance(dataset, Held):
        return Held(dataset.images[::every], dataset.labels[::every])
    return Subset(dataset, range(0, len(dataset), every))
