"""A run over several devices, as a command of its own: its processes begin as copies of the command, and end with the run."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from entrec.paper.runner.cell import Data
from entrec.paper.runner.notes import says_diverged
from entrec.paper.runner.processes import die_with
from entrec.training.claim import lent
from entrec.training.loop import DivergedError


def train_apart(method: str, data: Data, folder: Path, resume: bool, given: Mapping[str, Any]) -> None:
    """`entrec train` with these settings.

    Raises:
        ValueError: only some of the images are asked for, which the command cannot do.
        DivergedError: its numbers were none any more.
        RuntimeError: it failed otherwise; with the last that it said.
    """
    if data.images is not None:
        raise ValueError("runs over several devices train on all images, and only some are asked for: take one device")
    folder.parent.mkdir(parents=True, exist_ok=True)
    settings = folder.parent / f".{folder.name}.yaml"
    encoder = {} if data.backbone is None else {"backbone": data.backbone}
    settings.write_text(yaml.safe_dump({**encoder, **given, "data": data.data}))
    command = [sys.executable, "-m", "entrec", "train", method, "--config", str(settings), "--out", str(folder)]
    try:
        status, said = _ended([*command, *(["--resume"] if resume else [])], folder)
    finally:
        settings.unlink()
    if status:
        raise _error(status, said, diverged=says_diverged(folder))


def _ended(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """The exit status of a command that trains in a folder of ours, and what it said on stderr."""
    # Without Slurm's words: Lightning would count the job's one task, and not the devices that the command begins itself.
    own = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    own |= lent(folder)
    own["COLUMNS"] = "1000"  # or what it says would be broken into lines, paths in their middle
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=own,
        process_group=0,
        preexec_fn=partial(die_with, os.getpid()),
    ) as process:
        try:
            _, said = process.communicate()
        except BaseException:  # Ctrl-C: the command's own processes, one for each device, must end too
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


def _error(status: int, said: str, diverged: bool) -> RuntimeError:
    """What the command said after its last `error:`, or last of all; everything else stands in the traceback."""
    lines = said.strip().splitlines() or [f"entrec train ended with status {status}"]
    last = said.rpartition("error: ")[2] if "error: " in said else lines[-1]
    error = DivergedError(last) if diverged else RuntimeError(last)
    error.add_note(said)
    return error
