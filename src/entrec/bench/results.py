"""What a benchmark returns, where it was measured, and how it is written."""

import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from entrec import __version__
from entrec.bench.settings import Settings
from entrec.bench.timing import ProductRate

_MOMENT = 0.5  # seconds


@dataclass(frozen=True)
class Machine:
    """Where it was measured.

    Args:
        device: its name.
        threads: that PyTorch uses on the CPU.
        cores: of the CPU.
        load: what others kept running there when it began, in cores; None where that is not known.
        versions: of what ran.
    """

    device: str
    threads: int
    cores: int
    load: float | None
    versions: dict[str, str | None]

    @property
    def busy(self) -> bool:
        """Others took so much that times are not to be trusted."""
        return self.load is not None and self.load > self.cores / 4


@dataclass(frozen=True)
class Row:
    """One contestant at one size; None where a number was not or could not be measured.

    Args:
        k: rows of each view.
        d: their dimension.
        contestant: who.
        ms: median time of a step in milliseconds.
        back_to_back_ms: on CUDA, a step's share of many in a row by the host's clock.
        peak_mb: memory at the peak of a step beyond its inputs, gradients included, in 10^6 bytes.
        gradient_error: norm of the difference to the float64 gradient, over the norm of that.
        fraction: of the measured matrix-product rate (`entrec.bench.contestants` has the count of operations).
        note: why there are no numbers.
    """

    k: int
    d: int
    contestant: str
    ms: float | None = None
    back_to_back_ms: float | None = None
    peak_mb: float | None = None
    gradient_error: float | None = None
    fraction: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured; `missing` says which contestant could not be, and why."""

    settings: Settings
    machine: Machine
    product_rate: ProductRate
    rows: list[Row]
    missing: str


def write(benchmark: Any, path: Path) -> None:
    """Write everything, a dataclass of plain values, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(benchmark), indent=1) + "\n")


def machine(device: torch.device) -> Machine:
    """The device by name, and the versions of what runs on it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    versions: dict[str, str | None] = {"entrec": __version__, "torch": torch.__version__, "python": platform.python_version()}
    versions |= {package: _version(package) for package in ("triton", "lightly")}
    return Machine(name, torch.get_num_threads(), os.cpu_count() or 1, _load(), versions)


def _load() -> float | None:
    """Cores in use by others, over a moment in which this process does nothing.

    The system's own average is over a minute, and would still count what had ended before: the benchmark run just before this.
    """
    before = _spent()
    if before is None:
        return None
    time.sleep(_MOMENT)
    after = _spent()
    return None if after is None else (after - before) / _MOMENT


def _spent() -> float | None:
    """Seconds that all cores have worked since the machine was started; None where it is not Linux."""
    try:
        user, nice, system = Path("/proc/stat").read_text().split(maxsplit=4)[1:4]
    except OSError:
        return None
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
