"""Runs small enough for a test: 48 images of 8 pixels a side, 3 batches in an epoch, heads of a few units."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

import entrec
from entrec.data import Held, Source
from entrec.training import checkpoint
from entrec.training.feed import Feed
from entrec.training.loop import Loop
from entrec.training.run import Run
from entrec.training.update import Update

IMAGES, CLASSES, SIDE = 48, 3, 8
HEADS: dict[str, dict[str, Any]] = {
    "simclr": {"hidden": 16, "dim": 8},
    "cmc": {"hidden": 16, "dim": 8},
    "ir": {"hidden": 16, "dim": 8},
    "moco": {"hidden": 16, "dim": 8, "queue": 40, "ema": 0.9},
    "deepcluster": {"hidden": 16, "dim": 8, "clusters": 5},
    "swav": {"hidden": 16, "dim": 8, "prototypes": 6, "queue": 20},
    "byol": {"hidden": 16, "dim": 8, "ema": 0.9},
    "dino": {"hidden": 16, "bottleneck": 8, "codes": 14, "small_crops": 1, "ema": 0.9},
}
COMMON: dict[str, Any] = {
    "epochs": 2, "batch_size": 16, "backbone": "tiny", "device": "cpu", "workers": 0, "log_every": 1, "checkpoint_every": 4,
}  # fmt: skip


class Stopped(Exception):  # noqa: N818 - what happened to the run
    """Stands for whatever ends a process."""


def pixels(n: int = IMAGES, seed: int = 0, side: int = SIDE) -> Tensor:
    """Images (n, 3, side, side) of noise around a colour of their class's own."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 128, (n, 3, side, side), generator=generator)
    return (noise + 120 * torch.eye(3, dtype=torch.int64)[classes(n)][:, :, None, None]).to(torch.uint8)


def classes(n: int = IMAGES) -> Tensor:
    return torch.arange(n) % CLASSES


def source(labelled: bool = True, seed: int = 0) -> Source:
    """A training and a test split in memory."""
    train, test = (Held(pixels(n, seed + part), classes(n) if labelled else None) for part, n in enumerate((IMAGES, 24)))
    names = ("red", "green", "blue") if labelled else ()
    return Source("colours", train, test, names, 3, SIDE, (0.4,) * 3, (0.25,) * 3, backbone="tiny")


class Cameras(Dataset[Any]):
    """Two pictures of each thing, at different contrast, with the thing's class or without."""

    def __init__(self, labelled: bool = False) -> None:
        self.left, self.right, self.labelled = pixels(), pixels(seed=1) // 2, labelled

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> Any:
        pair = (self.left[index], self.right[index])
        return (pair, int(classes()[index])) if self.labelled else pair


class Modalities(Cameras):
    """A colour picture of each thing and a depth map of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.right = pixels(seed=1, side=SIDE + 4)[:, :1]


def quick(method: str, out: Path, data: Any = None, **given: Any) -> Run:
    """Train for 6 steps, unless told otherwise, with a row per step and checkpoints after steps 3, 4 and 6."""
    without = {"queue"} if method == "moco" and given.get("er") else set()  # which ER has no use for
    heads = {key: value for key, value in HEADS[method].items() if key not in without}
    return entrec.train(method, data=source() if data is None else data, out=out, **{**COMMON, **heads, **given})


def broken_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """The views of step number `step`, the first being 0, hold no numbers; so has the encoder none from then on."""
    views, whole = Feed.views, Update.__call__
    at: list[int] = []

    def broken(self: Feed, *batch: Any) -> tuple[Tensor, ...]:
        return tuple(torch.full_like(x, torch.nan) if at[-1] == step else x for x in views(self, *batch))

    def noted(self: Update, fed: Any, done: int) -> Any:
        at.append(done)
        return whole(self, fed, done)

    patch.setattr(Feed, "views", broken)
    patch.setattr(Update, "__call__", noted)


@contextmanager
def stopped_before(step: int) -> Iterator[None]:
    """The run within must be stopped when step number `step`, the first being 0, is about to begin."""
    original = Loop._one_step

    def until(self: Loop, fed: Any, measured: bool) -> Any:
        if self.place.step == step:
            raise Stopped
        return original(self, fed, measured)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_one_step", until)
        with pytest.raises(Stopped):
            yield


def every_tensor(run: Run, best: bool = False) -> dict[str, Any]:
    """All that the last checkpoint holds, or the best, by name."""
    return dict(_leaves("", checkpoint.load(run.best if best else run.checkpoint)._asdict()))


def different(one: Run, other: Run, best: bool = False) -> list[str]:
    """The names of what is not bit for bit the same in the checkpoints of two runs, but for what the clock said."""
    a, b = (every_tensor(run, best) for run in (one, other))
    keys = (a.keys() | b.keys()) - {"/history/0"}
    return [key for key in keys if key not in a or key not in b or not _same(a[key], b[key])]


def rows(run: Run) -> list[dict[str, float]]:
    """The rows of metrics.csv without what the clock says."""
    return [{key: value for key, value in row.items() if key != "samples_per_second"} for row in run.metrics]


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_png(path: Path, image: Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)


def folder_of_files(folder: Path, n: int = IMAGES, uneven: bool = False) -> Path:
    """PNG files train/CLASS/NUMBER.png and test/CLASS/NUMBER.png; of uneven size, they are decoded as they are needed."""
    for split, count, seed in (("train", n, 0), ("test", 12, 1)):
        for i, image in enumerate(pixels(count, seed, 12)):
            cut = image[:, : 12 - i % 3] if uneven else image
            write_png(folder / split / f"class{i % CLASSES}" / f"{i:03}.png", cut)
    return folder


def as_array(image: Tensor) -> Any:
    """An image (H, W, C) for NumPy."""
    return np.ascontiguousarray(image.permute(1, 2, 0).numpy())


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(f"{name}/{key}", part)
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from _leaves(f"{name}/{place}", part)
    else:
        yield name, value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return bool(a == b)
