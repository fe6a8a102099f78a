"""What a run's folder says of how it ended."""

import json
import platform
import shutil
import traceback
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from entrec.files import appearing
from entrec.paper.runner.reasons import in_a_line
from entrec.training.loop import DivergedError
from entrec.training.run import Run

FAILED, TRACEBACK, MADE, SUMMARY = "failed.txt", "traceback.txt", "made.json", "summary.json"
_DIVERGED = "diverged"  # the second line of failed.txt
_LARGE = ("checkpoints", "tensorboard", "encoder.safetensors")


class Outcome(NamedTuple):
    """How a run stands, and for one that failed why.

    Args:
        state: one that was stopped in between is not run, as nothing can be read off it yet.
        reason: in a line.
        diverged: it failed because its numbers were none any more, which says something of its settings; any other failure
            says something of the machine or the code.
    """

    state: Literal["done", "failed", "not run"]
    reason: str = ""
    diverged: bool = False


def outcome(folder: Path) -> Outcome:
    """Of the run in a folder."""
    if (folder / FAILED).is_file():
        reason, *more = (folder / FAILED).read_text(errors="replace").splitlines() or [""]
        return Outcome("failed", reason, _DIVERGED in more or says_diverged(folder))
    if not (folder / SUMMARY).is_file():
        return Outcome("not run")
    if _summary(folder) is None:
        return Outcome("failed", f"damaged: {SUMMARY} cannot be read")
    return Outcome("done")


def says_diverged(folder: Path) -> bool:
    """Whether the summary of a run that failed says that its numbers were none any more."""
    return (_summary(folder) or {}).get("verdict") == "diverging"


def _summary(folder: Path) -> dict[str, Any] | None:
    """None where there is none, or none that can be read."""
    try:
        return Run(folder).summary
    except (ValueError, FileNotFoundError):
        return None


def note_failure(folder: Path, error: Exception) -> None:
    """Why a run failed, in a line; and where, unless its numbers were none any more, which no line of code is to blame for."""
    folder.mkdir(parents=True, exist_ok=True)
    diverged = isinstance(error, DivergedError)
    said = in_a_line(str(error) if diverged else f"{type(error).__name__}: {error}", folder)
    if not diverged:
        (folder / TRACEBACK).write_text("".join(traceback.format_exception(error)))
    with appearing(folder / FAILED) as unfinished:
        unfinished.write_text(f"{said}\n{_DIVERGED}\n" if diverged else f"{said}\n")


def forget_failure(folder: Path) -> None:
    """So that a run that failed is made again: from its last checkpoint where it has one, and otherwise from the start.

    What is not known to have failed stays as it is.
    """
    if outcome(folder).state == "failed":
        for name in (SUMMARY, TRACEBACK, FAILED):  # in this order: a diverged run's summary alone would look like a done one's
            (folder / name).unlink(missing_ok=True)


def note_made(folder: Path, seconds: float, on_gpu: bool) -> None:
    """On what a run was made, and in how many seconds, the opening of data left out."""
    facts: dict[str, Any] = {"seconds": round(seconds, 1), "device": device_name(on_gpu), "torch": torch.__version__}
    with appearing(folder / MADE) as unfinished:
        unfinished.write_text(json.dumps(facts, indent=1) + "\n")


def device_name(on_gpu: bool) -> str:
    """The card's name, or the processor's kind and how many of its cores computed."""
    if on_gpu:
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'s' if threads > 1 else ''}"


def tidy(folder: Path) -> None:
    """Delete what is large."""
    for name in _LARGE:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
