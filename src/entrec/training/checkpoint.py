"""Everything that the next step reads, in one file that is there whole or not at all."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from entrec.files import appearing
from entrec.unpickling import UnreadableError, load_plain

FORMAT = 2


class Place(NamedTuple):
    """Where in a run a checkpoint was taken: optimiser steps done, the epoch that comes next, its first batch."""

    step: int
    epoch: int
    batch: int


class History(NamedTuple):
    """What the summary will tell of the run so far.

    Args:
        seconds: it took, over all its sittings.
        skipped: files that could not be read, each with the reason.
        looks: through the lens: the number of epochs behind, the verdict's name, and the ER bound where there was one.
    """

    seconds: float
    skipped: tuple[str, ...]
    looks: tuple[tuple[int, str, float | None], ...] = ()


class Content(NamedTuple):
    """What a checkpoint holds.

    Args:
        place: where in the run.
        config: the run's settings, complete.
        facts: what must be known of the data to use the encoder without them: channels, mean, std, classes.
        parts: state dicts by name: method, optimizer, probe, probe_optimizer.
        history: of the run; nothing that the next step reads.
    """

    place: Place
    config: dict[str, Any]
    facts: dict[str, Any]
    parts: dict[str, Any]
    history: History


def save(path: Path, content: Content) -> None:
    """Write a checkpoint.

    No RNG state: all draws of a run follow from its seed and their place in it (`draws`).
    """
    plain = {"format": FORMAT, **content._asdict(), "place": tuple(content.place), "history": tuple(content.history)}
    with appearing(path) as unfinished:
        torch.save(plain, unfinished)


def load(path: Path) -> Content:
    """Read a checkpoint; nothing but tensors and plain values is ever unpickled."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        content = load_plain(path)
    except UnreadableError as error:
        raise ValueError(f"{path} is no checkpoint of entrec's, or is damaged: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is no checkpoint of entrec's, or of another version of it (format {FORMAT} is wanted)")
    try:
        config, facts, parts = content["config"], content["facts"], content["parts"]
        return Content(Place(*content["place"]), config, facts, parts, History(*content["history"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no checkpoint of entrec's, or is damaged: parts of one are missing ({error})") from error
