"""The feed: batches of files, which workers go on loading from one epoch into the next."""

import time
from multiprocessing import Value
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from entrec.data import Source, open_source
from entrec.training.feed import Fed, Feed
from entrec.views import Augment, recipe
from tests.training.tiny import folder_of_files, pixels

CPU, EPOCHS, BATCH = torch.device("cpu"), 3, 8


def feed_of(data: Any, workers: int, epochs: int = EPOCHS) -> Feed:
    source = data if isinstance(data, Source) else open_source(data, image_size=8)
    return Feed(source, Augment(recipe("simclr", 8), (0.4,) * 3, (0.25,) * 3), BATCH, 0, CPU, workers=workers, epochs=epochs)


def same(found: list[Fed], expected: list[Fed]) -> bool:
    """All but the skipped ones, which there are none of."""
    return len(found) == len(expected) > 0 and all(
        a.seed == b.seed
        and torch.equal(a.places, b.places)
        and torch.equal(a.labels, b.labels)
        and all(torch.equal(x, y) for x, y in zip(a.crops, b.crops, strict=True))
        for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epochs_batches_do_not_depend_on_what_came_before(workers: int, tmp_path: Path) -> None:
    data = folder_of_files(tmp_path, uneven=True)
    alone = [list(feed_of(data, 0, epochs=0).epoch(epoch)) for epoch in range(EPOCHS)]
    feed = feed_of(data, workers)
    assert same(list(feed.epoch(0)), alone[0])
    assert same(list(feed.epoch(1)), alone[1])  # which the workers have begun
    next(feed.epoch(2))
    assert same(list(feed.epoch(2)), alone[2])  # again, after it was left
    assert same(list(feed.epoch(0, start=2)), alone[0][2:])
    assert same(list(feed.epoch(2)), alone[2])  # another than the next one
    weights = torch.arange(48.0)
    weighted = list(feed_of(data, 0, epochs=0).epoch(1, weights=weights))
    list(feed.epoch(0))
    assert same(list(feed.epoch(1, weights=weights)), weighted)  # of which no worker knew
    assert same(list(feed.epoch(2)), alone[2])


class Counted(Dataset[Any]):
    """Images that count how often they were asked for, over all processes."""

    def __init__(self) -> None:
        self.images, self.asked = pixels(), Value("i", 0)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with self.asked.get_lock():
            self.asked.value += 1
        return self.images[index], -1


def loaded(data: Counted, wanted: int) -> int:
    """How many were asked for in the end, which takes a moment."""
    until = time.monotonic() + 60
    while data.asked.value < wanted and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    return int(data.asked.value)


def test_workers_load_the_next_epoch_before_it_begins_and_none_behind_the_last() -> None:
    data = Counted()
    source = Source("counted", data, None, (), 3, 8, (0.4,) * 3, (0.25,) * 3)
    feed = feed_of(source, workers=2, epochs=2)
    assert len(list(feed.epoch(0))) == 6
    assert loaded(data, 48 + 4 * BATCH) == 48 + 4 * BATCH  # two batches ahead each
    assert len(list(feed.epoch(1))) == 6
    assert loaded(data, 2 * 48) == 2 * 48
