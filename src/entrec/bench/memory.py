"""Memory: what a device has free, and what a step takes at its peak."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch

from entrec.bench.contestants import What
from entrec.pairwise import Precision


@dataclass(frozen=True)
class Case:
    """One contestant at one size, in plain types that can be sent to another process."""

    what: What
    contestant: str
    k: int
    d: int
    kappa: float
    precision: Precision
    dtype: str
    threads: int


class ResidentMemory(AbstractContextManager["ResidentMemory"]):
    """Growth of resident memory on a CPU, each case in a fresh process (see `entrec.bench.resident`); Linux only.

    In this process freed memory that the allocator keeps would hide what a later step takes.
    """

    def __init__(self) -> None:
        self._helper: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if os.access("/proc/self/clear_refs", os.W_OK):
            # Python 3.12 warns of a fork beside other threads; those of NumPy's library know how to fork.
            command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "entrec.bench.resident"]
            self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._answer()  # that it is ready: its imports would slow down what is timed meanwhile
        return self

    def __exit__(self, *reason: object) -> None:
        if self._helper is not None:
            self._helper.terminate()
            self._helper.communicate()

    def growth(self, case: Case) -> int | None:
        """Peak bytes of a step beyond its inputs; None where it cannot be known, or the process did not live."""
        if self._helper is None or self._helper.stdin is None:
            return None
        try:
            self._helper.stdin.write(json.dumps(asdict(case)) + "\n")
            self._helper.stdin.flush()
        except BrokenPipeError:
            return None
        return self._answer()

    def _answer(self) -> int | None:
        line = self._helper.stdout.readline() if self._helper is not None and self._helper.stdout is not None else ""
        answer: int | None = json.loads(line) if line else None
        return answer


def cuda_peak(step: Callable[[], object], device: torch.device) -> int:
    """Peak bytes that a step allocates beyond what is there before it; gradients count if there are none yet."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def free_bytes(device: torch.device) -> float:
    """What a program can still have; infinity where the system does not say."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    known = [_available(), _left_to_the_container()]
    return min((value for value in known if value is not None), default=float("inf"))


def out_of_memory(error: RuntimeError) -> bool:
    """CUDA has a type for it; the CPU's allocator only says so."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _left_to_the_container() -> int | None:
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (group / "memory.max").read_text().strip(), (group / "memory.current").read_text()
    except OSError:
        return None
    return None if limit == "max" else int(limit) - int(used)
