"""Training on 1, 2, 4, ... processes of one machine, each with the same batch: its speed, its messages, its work.

    entrec bench ranks --method byol --er --ranks 1 --ranks 2 --ranks 4 --batch-size 64 --out FILE.json

Every rank is a process with one thread, and ranks talk through gloo. The images are random and in memory.
"""

import gc
import json
import logging
import os
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from entrec.bench.messages import Message, Work, watched_step
from entrec.bench.results import Machine, machine
from entrec.bench.train import random_source
from entrec.data import Source
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.feed import Fed
from entrec.training.loop import Loop
from entrec.training.refusals import check_fit
from entrec.training.run import Run
from entrec.training.settings import Settings as RunSettings
from entrec.training.settings import settings as run_settings

_CLASSES = 10
_SIDE_AT_LEAST = 8  # as `entrec.training.settings` asks of a view


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Args:
        run: the settings of the run, but for its batch size.
        ranks: numbers of processes.
        batch: samples in a step of each.
        image_size: of the random images.
        steps: of training, of which the later half is timed.
    """

    run: dict[str, Any]
    ranks: tuple[int, ...]
    batch: int
    image_size: int
    steps: int


@dataclass(frozen=True)
class Row:
    """One number of ranks.

    Args:
        ranks: processes.
        cores: that they can use, of those that there are.
        rate: samples per second, of all ranks together.
        cpu_ms: processor time of a step on one rank, which others' load on the machine changes little.
        apart_rate: samples per second of as many processes that train at the same time, each by itself.
        apart_cpu_ms: processor time of a step of one of these.
        work: of one step on the first rank.
    """

    ranks: int
    cores: int
    rate: float
    cpu_ms: float
    apart_rate: float
    apart_cpu_ms: float
    work: Work

    @property
    def per_core(self) -> float:
        """Samples per second and core in use."""
        return self.rate / self.cores

    @property
    def kept(self) -> float:
        """What is left of the rate of processes that do not talk to each other."""
        return self.rate / self.apart_rate


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured, and the settings of the run as they were understood."""

    settings: Settings
    complete: dict[str, Any]
    machine: Machine
    rows: list[Row]


@dataclass(frozen=True)
class _Seen:
    """What one process saw: seconds and processor seconds of a step, and the work of one."""

    seconds: float
    cpu_seconds: float
    work: Work


class _Timed(Loop):
    """A loop that remembers when each step began, by the clock and in processor time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.moments: list[tuple[float, float]] = []

    def _one_step(self, fed: Fed, measured: bool) -> Any:
        self.moments.append((time.perf_counter(), time.process_time()))
        return super()._one_step(fed, measured)


def settings(
    method: str = "byol",
    ranks: tuple[int, ...] = (1, 2, 4),
    batch: int = 64,
    image_size: int = 32,
    steps: int = 30,
    **given: Any,
) -> Settings:
    """Check the choices; `given` are settings of the run: er, backbone, ..."""
    run = {"method": method, "device": "cpu", **given}
    run_settings(method, {key: value for key, value in run.items() if key != "method"})
    for number in ranks:
        if number < 1:
            raise ValueError(f"ranks must be at least 1, got {number}")
    if batch < 2:
        raise ValueError(f"a rank's batch must have at least 2 samples, got {batch}")
    if image_size < _SIDE_AT_LEAST:
        raise ValueError(f"images must be at least {_SIDE_AT_LEAST} pixels wide, got {image_size}")
    if steps < 10:
        raise ValueError(f"steps must be at least 10, of which the first half is not counted, got {steps}")
    return Settings(run, tuple(sorted(set(ranks))), batch, image_size, steps)


def run(chosen: Settings, progress: Callable[[str], None] = lambda part: None) -> Benchmark:
    """Measure every number of ranks; `progress` hears what comes next."""
    where = machine(torch.device("cpu"))
    # Here first, where what does not fit is told in words, and not from within a process that was started for it.
    parts = assemble(_wanted(chosen, 1), _source(chosen, 1))
    check_fit(parts, 1)
    complete = parts.settings.flat() | {"data": parts.source.name}
    rows = [_measured(chosen, number, where.cores, progress) for number in chosen.ranks]
    return Benchmark(chosen, complete, where, rows)


def _measured(chosen: Settings, number: int, cores: int, progress: Callable[[str], None]) -> Row:
    progress(f"{number} rank{'s' * (number > 1)}")
    together = apart = _in_processes(chosen, number, together=True)
    if number > 1:
        progress(f"{number} processes, each by itself")
        apart = _in_processes(chosen, number, together=False)
    cpu_ms, apart_cpu_ms = (1e3 * fmean(x.cpu_seconds for x in group) for group in (together, apart))
    rate, apart_rate = (sum(chosen.batch / x.seconds for x in group) for group in (together, apart))
    return Row(number, min(number, cores), rate, cpu_ms, apart_rate, apart_cpu_ms, together[0].work)


def _in_processes(chosen: Settings, number: int, together: bool) -> list[_Seen]:
    """What each of so many processes saw, as ranks of one run or each in a run of its own."""
    start = torch.multiprocessing.get_context("spawn").Barrier(number)
    with tempfile.TemporaryDirectory() as folder:
        spawn(_process, (chosen, number if together else 1, _free_port(), start, Path(folder)), nprocs=number)
        return [_read(Path(folder) / f"{place}.json") for place in range(number)]


def _process(place: int, chosen: Settings, world: int, port: int, start: Any, folder: Path) -> None:
    """One process: a rank of `world`."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the table is what is wanted here; `entrec train` tells them
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # which tells that the ranks have met
    if world > 1:
        where = {"RANK": place, "LOCAL_RANK": place, "NODE_RANK": 0, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **{key: str(x) for key, x in where.items()}})
    wanted = _wanted(chosen, world)
    loop = _Timed(fabric_for(wanted), assemble(wanted, _source(chosen, world)), Run(folder / f"run{place}"))
    start.wait()  # or those that begin late would have the machine to themselves
    next(loop.fit(None))  # the only epoch, up to its checkpoint
    seen = _Seen(*_of_a_step(loop.moments), watched_step(loop))
    (folder / f"{place}.json").write_text(json.dumps(asdict(seen)))
    if dist.is_initialized():
        del loop
        gc.collect()  # the wrapper holds the group in a circle, whose threads must end before the interpreter does
        dist.destroy_process_group()


def _of_a_step(moments: list[tuple[float, float]]) -> tuple[float, float]:
    """Seconds by the clock, the median over the later half of the steps, and of processor time, which has a mean."""
    later = moments[len(moments) // 2 :]
    steps = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(later)]
    return median(x for x, _ in steps), fmean(x for _, x in steps)


def _read(path: Path) -> _Seen:
    found = json.loads(path.read_text())
    work = {**found["work"], "messages": [Message(**x) for x in found["work"]["messages"]]}
    return _Seen(**{**found, "work": Work(**work)})


def _wanted(chosen: Settings, world: int) -> RunSettings:
    """The run's settings: as a user has them, for an epoch of so many steps."""
    given = {key: value for key, value in chosen.run.items() if key != "method"}
    return run_settings(chosen.run["method"], {"batch_size": world * chosen.batch, "epochs": 1, **given})


def _source(chosen: Settings, world: int) -> Source:
    return random_source(chosen.steps * world * chosen.batch, chosen.image_size, backbone="tiny")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
