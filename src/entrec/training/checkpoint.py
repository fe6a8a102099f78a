"""Everything that the next step reads, in one file that is there whole or not at all."""

import shutil
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor

from entrec.files import appearing
from entrec.unpickling import UnreadableError, load_plain

FORMAT = 2
_PINNED = 2**27  # bytes of a tensor


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


class Writer:
    """Writes checkpoints beside the training, one at a time: what they hold is copied before it changes again.

    A file takes as long as hundreds of steps of a small encoder, whose epoch may have no more.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._failed: BaseException | None = None

    def save(self, path: Path, content: Content, also: Path | None = None) -> None:
        """Copy what the checkpoint holds, and begin to write it, and then a second file of it where one is wanted.

        Raises:
            OSError: the one before could not be written.
        """
        self.wait()
        own = content._replace(parts=_copied(content.parts))
        self._thread = Thread(target=self._write, args=(path, own, also), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when the last one is there.

        Raises:
            OSError: it could not be written.
        """
        if self._thread is not None and self._thread.ident is not None:  # else it could not be started
            self._thread.join()
        self._thread, failed, self._failed = None, self._failed, None
        if failed is not None:
            raise failed

    def _write(self, path: Path, content: Content, also: Path | None) -> None:
        try:
            save(path, content)
            if also is not None:
                copy(path, also)
        except BaseException as error:  # for the thread that waits
            self._failed = error


def _copied(parts: dict[str, Any]) -> dict[str, Any]:
    """The same with tensors of its own on the CPU; a GPU copies to page-locked memory, at several times the rate."""
    known: dict[tuple[Any, ...], Tensor] = {}
    with torch.no_grad():
        found: dict[str, Any] = _own(parts, known)
    if any(place[0].type == "cuda" for place in known):
        torch.cuda.current_stream().synchronize()
    return found


# Not a function within the one above: it would hold itself, and with it all copies until Python looks for circles.
def _own(value: Any, known: dict[tuple[Any, ...], Tensor]) -> Any:
    """A value with copies of its tensors, of each once: `known` has those that were met, by what they are."""
    if isinstance(value, dict):
        found: Any = type(value)((key, _own(x, known)) for key, x in value.items())
        if hasattr(value, "_metadata"):  # of a state dict: its modules' versions
            found._metadata = value._metadata
        return found
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(_own(x, known) for x in value)
    if isinstance(value, list | tuple):
        return type(value)(_own(x, known) for x in value)
    if not isinstance(value, Tensor):
        return value
    if value.layout is not torch.strided:
        return value.detach().cpu().clone()
    place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
    if place not in known:
        # PyTorch keeps page-locked memory, in powers of two, until the process ends: not for a bank of a million rows.
        pinned = value.is_cuda and value.nbytes <= _PINNED
        known[place] = torch.empty_like(value, device="cpu", pin_memory=pinned).copy_(value, non_blocking=True)
    return known[place]


def copy(path: Path, to: Path) -> None:
    """A second file of a checkpoint, there whole or not at all."""
    with appearing(to) as unfinished:
        shutil.copyfile(path, unfinished)


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
