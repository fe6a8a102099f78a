"""A run over several devices, as a command of its own: its processes begin as copies of the command, and end with the run."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from entrec.paper.runner.cell import Data


def train_apart(method: str, data: Data, folder: Path, resume: bool, given: Mapping[str, Any]) -> None:
    """`entrec train` with these settings.

    Raises:
        ValueError: only some of the images are asked for, which the command cannot do.
        RuntimeError: it failed; with the last that it said.
    """
    if data.images is not None:
        raise ValueError("runs over several devices train on all images: leave out --images, or take one device")
    settings = folder.parent / f".{folder.name}.yaml"
    encoder = {} if data.backbone is None else {"backbone": data.backbone}
    settings.write_text(yaml.safe_dump({**encoder, **given, "data": data.data}))
    command = [sys.executable, "-m", "entrec", "train", method, "--config", str(settings), "--out", str(folder)]
    try:
        done = subprocess.run([*command, *(["--resume"] if resume else [])], capture_output=True, text=True, check=False)
    finally:
        settings.unlink()
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.split()[-60:]) or f"entrec train ended with status {done.returncode}")
