"""A whole data set in memory."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Held(Dataset[tuple[Tensor, int]]):
    """Images of one size, all in memory.

    Args:
        images: uint8 (N, C, H, W).
        labels: int64 (N,), or `None` for -1 everywhere.
        skipped: files that could not be decoded and are left out, each with the reason.
        paths: of the files that the images come from, if they do.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        skipped: tuple[str, ...] = (),
        paths: tuple[str, ...] | None = None,
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(f"images must be uint8 of shape (N, C, H, W), got {images.dtype} of shape {tuple(images.shape)}")
        if labels is None:
            labels = torch.full((len(images),), -1)
        if labels.dtype != torch.int64 or labels.shape != (len(images),):
            raise ValueError(
                f"labels must be int64 of shape ({len(images)},), got {labels.dtype} of shape {tuple(labels.shape)}"
            )
        self.images = images
        self.labels = labels
        self.skipped = skipped
        self.paths = paths

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])
