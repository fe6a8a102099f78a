"""Processes that share a GPU side by side: NVIDIA's Multi-Process Service, started for as long as it is needed.

Without it processes take turns, each with the whole card for a moment, and runs too small to fill the card gain nothing by
being several. It changes no setting of the card, and other users' work is left alone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

_CONTROL = "nvidia-cuda-mps-control"
_PIPE, _LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_TO_ANSWER = 120  # seconds that a first call to the card may take
_TO_END = 30


@contextmanager
def side_by_side(jobs: int, device: str = "auto") -> Iterator[str]:
    """Within, new processes use the GPU at the same time; yields why they take turns instead, nothing where they need not.

    A service that runs already is used as it is. One that is started here ends here, and is tried first, as there are machines
    where it starts and no process can use it.

    Args:
        jobs: processes; one needs no service.
        device: that they compute on; a CPU needs none.
    """
    if jobs == 1 or device == "cpu" or not torch.cuda.is_available() or os.environ.get(_PIPE):
        yield ""
        return
    if shutil.which(_CONTROL) is None:
        yield f"there is no {_CONTROL} here"
        return
    folder = Path(tempfile.mkdtemp(prefix="entrec-mps-"))  # short: it is a socket's name, too
    names = {_PIPE: str(folder / "pipe"), _LOG: str(folder / "log")}
    for name in names.values():
        Path(name).mkdir()
    environment = {**os.environ, **names}
    why = _started(environment)
    try:
        if not why:
            os.environ.update(names)
        yield why
    finally:
        for name in names:
            os.environ.pop(name, None)
        _end(environment)
        shutil.rmtree(folder, ignore_errors=True)


def _started(environment: dict[str, str]) -> str:
    """Start the service and let a process use the card through it; returns why that cannot be done."""
    try:
        begun = subprocess.run([_CONTROL, "-d"], env=environment, capture_output=True, text=True, timeout=_TO_END)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{_CONTROL} could not be started: {error}"
    if begun.returncode:
        return f"{_CONTROL} could not be started: {_in_a_line(begun.stderr or begun.stdout)}"
    code = "import torch; torch.zeros(1, device='cuda').cpu()"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=_TO_ANSWER
        )
    except subprocess.TimeoutExpired:
        return "a process did not come to use the GPU through MPS"
    return f"a process could not use the GPU through MPS: {_in_a_line(tried.stderr)}" if tried.returncode else ""


def _end(environment: dict[str, str]) -> None:
    try:
        subprocess.run([_CONTROL], env=environment, input="quit\n", capture_output=True, text=True, timeout=_TO_END)
    except (OSError, subprocess.TimeoutExpired):  # it ends with the machine, and takes nothing until then
        return


def _in_a_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it did not say why"
