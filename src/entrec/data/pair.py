"""A pair of anybody's data sets: one to train on, and one held out."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from entrec.data.adapt import Adapted, channels_of, check_map_style, class_names, open_dataset, sampled, split_item
from entrec.data.source import Source


def open_pair(pair: Sequence[Any], *, image_size: int | None = None, labels: bool | None = None) -> Source:
    """The source of `(train, test)`, two map-style data sets: the facts of the first, as `entrec.data.adapt` finds them.

    The second must have samples of as many views and channels (grey images among colour ones are repeated), and its labels
    must be places in the first's classes. Where it has none, its images are taken without, and a notice says so
    (`labels=True`: an error).
    """
    if len(pair) != 2 or not all(isinstance(part, Dataset) for part in pair):
        got = ", ".join(type(part).__name__ for part in pair)
        raise TypeError(f"several data sets must be a pair (train, test) of Datasets, got {got}")
    train, test = pair
    found = open_dataset(train, image_size=image_size, labels=labels)
    check_map_style(test)
    channels = (found.channels, *(view.channels for view in found.others))
    seen = [(channels_of(item), split_item(item)[1]) for item in (test[place] for place in sampled(len(test)))]
    _check_views(channels, [of_views for of_views, _ in seen])
    if not found.classes or any(label >= 0 for _, label in seen):
        if found.classes:
            _check_classes(found.classes, class_names(test))
        held_out = Adapted(test, bool(found.classes), channels, len(found.classes))
        for place, (_, label) in zip(sampled(len(test)), seen, strict=True):
            if label >= len(found.classes) > 0:
                held_out[place]  # says what is wrong with it
        return dataclasses.replace(found, test=held_out)
    if labels:
        raise ValueError("labels=True, but the test items have no labels; give them some, or say labels=False")
    notice = "the test items have no labels, and the training items do: the test images are taken without"
    return dataclasses.replace(found, test=Adapted(test, False, channels), notices=(*found.notices, notice))


def _check_views(train: tuple[int, ...], test: Sequence[tuple[int, ...]]) -> None:
    """As many views as in training, of as many channels each, of which some items may have one (grey)."""
    for channels in test:
        if len(channels) != len(train):
            raise ValueError(f"test items must have {len(train)} views, as the training items, got {len(channels)}")
    most = tuple(map(max, zip(*test, strict=True)))
    if most != train:
        raise ValueError(f"test images must have {_listed(train)} channels, as the training images, got {_listed(most)}")


def _check_classes(train: tuple[str, ...], test: tuple[str, ...]) -> None:
    """Labels of the test items mean what they mean in training; where one side has but numbers, they must be in range."""
    if len(test) > len(train):
        raise ValueError(f"test labels must be among the {len(train)} training classes, got labels up to {len(test) - 1}")
    named = all(names != tuple(map(str, range(len(names)))) for names in (train, test))
    if named and test != train[: len(test)]:
        ours, theirs = next(pair for pair in zip(train, test, strict=False) if pair[0] != pair[1])
        raise ValueError(f"test classes must be the training classes, in their order; {theirs!r} stands where {ours!r} does")


def _listed(channels: tuple[int, ...]) -> str:
    return " and ".join(map(str, channels))
