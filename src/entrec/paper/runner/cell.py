"""A run that is wanted, and what it shares with the others."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from entrec.data import Source, open_source
from entrec.training.images import some


class Cell(NamedTuple):
    """A run: its folder's name, its method and what it was given."""

    name: str
    method: str
    given: dict[str, Any]


class Data(NamedTuple):
    """What runs are trained on and judged by.

    Args:
        data: a name, a folder or an archive.
        images: at most so many to train on, and as many to be judged by; None for all.
        backbone: None for what suits the data.
    """

    data: str
    images: int | None = None
    backbone: str | None = None


class Pool(NamedTuple):
    """Where runs lie, and what all of them are given.

    Args:
        folder: that holds a folder for each.
        data: theirs.
        given: to each, unless its cell says otherwise.
        keep: checkpoints, encoder and TensorBoard files of runs that have ended; otherwise settings, metrics and summary alone
            stay, as a grid of large encoders fills a disk.
    """

    folder: Path
    data: Data
    given: dict[str, Any]
    keep: bool = True


@cache
def opened(data: Data) -> Source:
    """Once for all of a process's runs: an archive takes longer to unpack than some of them to train."""
    source = open_source(data.data)
    if data.images is not None:
        test = None if source.test is None else some(source.test, data.images)
        source = replace(source, train=some(source.train, data.images), test=test)
    return source if data.backbone is None else replace(source, backbone=data.backbone)


def require_scored(source: Source) -> None:
    """Runs are judged by a linear probe.

    Raises:
        ValueError: these data allow none, which would be seen only after all training.
    """
    if not source.classes or source.test is None:
        lacking = "labels" if not source.classes else "test split"
        raise ValueError(f"{source.name} has no {lacking}, and a linear probe is what runs are judged by: take labelled data")
