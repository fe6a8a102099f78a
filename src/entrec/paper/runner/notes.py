"""What a run's folder says of how it ended."""

import json
import platform
import shutil
import traceback
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from entrec.files import appearing
from entrec.training.loop import DivergedError

FAILED, TRACEBACK, MADE = "failed.txt", "traceback.txt", "made.json"
_LARGE = ("checkpoints", "tensorboard", "encoder.safetensors")


class Outcome(NamedTuple):
    """How a run stands, and for one that failed why, in a line."""

    state: Literal["done", "failed", "not run"]
    reason: str = ""


def outcome(folder: Path) -> Outcome:
    """Of the run in a folder; one that was stopped in between is not run, as nothing can be read off it yet."""
    if (folder / FAILED).is_file():
        return Outcome("failed", (folder / FAILED).read_text().partition("\n")[0])
    return Outcome("done" if (folder / "summary.json").is_file() else "not run")


def note_failure(folder: Path, error: Exception) -> None:
    """Why a run failed, in a line; and where, unless its numbers were none any more, which no line of code is to blame for."""
    folder.mkdir(parents=True, exist_ok=True)
    # A path of this machine tells nobody anything who reads the table elsewhere.
    said = " ".join(str(error).split()).replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")
    if not isinstance(error, DivergedError):
        said = f"{type(error).__name__}: {said}"
        (folder / TRACEBACK).write_text("".join(traceback.format_exception(error)))
    with appearing(folder / FAILED) as unfinished:
        unfinished.write_text(f"{said}\n")


def forget_failure(folder: Path) -> None:
    """So that the run is made again: from its last checkpoint where it has one, and otherwise from the start."""
    for name in (FAILED, TRACEBACK, "summary.json"):
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
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def tidy(folder: Path) -> None:
    """Delete what is large."""
    for name in _LARGE:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
