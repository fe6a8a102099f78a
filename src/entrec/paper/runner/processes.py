"""Tasks shared out among processes of which any may die: the task that it had is lost, and the others are done."""

import ctypes
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class Died(NamedTuple):
    """In the place of a result: the process ended in the middle of the task."""

    status: int

    def __str__(self) -> str:
        """How, in words."""
        if self.status >= 0:
            return f"its process ended with status {self.status}"
        name = signal.Signals(-self.status).name
        return f"its process was ended by {name}" + (", as happens where memory is short" if name == "SIGKILL" else "")


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: "Connection[Any, Any]"


def shared_out(
    tasks: Sequence[Task], work: Callable[[Task], Result], count: int, spent: Callable[[Result], bool] = lambda result: False
) -> Iterator[tuple[Task, Result | Died]]:
    """Tasks and what came of them, as they end; begun in their order, `count` at a time.

    Whatever stops the caller, Ctrl-C for instance, ends the processes at once, and nothing more is begun.

    Args:
        tasks: that can be pickled.
        work: does one; what it keeps in memory is there for the next one.
        count: of processes.
        spent: whether the process that such a result came from should do no more.
    """
    waiting, idle, busy = deque(tasks), list[_Worker](), list[tuple[_Worker, Task]]()
    try:
        while waiting or busy:
            while waiting and len(busy) < count:
                worker = idle.pop() if idle else _started(work, min(count, len(tasks)))
                busy.append((worker, waiting.popleft()))
                _send(*busy[-1])
            ready = wait([worker.pipe for worker, _ in busy])
            for worker, task in [pair for pair in busy if pair[0].pipe in ready]:
                result: Result | Died = _received(worker)
                busy.remove((worker, task))
                if isinstance(result, Died) or spent(result):
                    _end([worker])
                else:
                    idle.append(worker)
                yield task, result
    finally:
        _end([*idle, *(worker for worker, _ in busy)])


def _started(work: Callable[[Task], Result], among: int) -> _Worker:
    # Spawned, as a process that has used a GPU cannot be forked.
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs, os.getpid(), among))
    # Ctrl-C in a terminal goes to all of its processes. Blocked while this one begins, it is blocked there for good, and none
    # that comes meanwhile is lost here.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()  # so that the process has the only one, and its end is the pipe's
    return _Worker(process, ours)


def _serve(work: Callable[[Task], Result], pipe: "Connection[Result, Task]", parent: int, among: int) -> None:
    """What a process does: tasks, until there are none."""
    die_with(parent)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // among))
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(work(task))


def _send(worker: _Worker, task: object) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it died idle: the pipe's end is what is received next
        worker.pipe.send(task)


def _received(worker: _Worker) -> Any:
    try:
        return worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return Died(worker.process.exitcode or 0)


def _end(workers: Sequence[_Worker]) -> None:
    """At once: a run goes on from its last checkpoint, which is written whole or not at all."""
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.pipe.close()


def die_with(parent: int) -> None:
    """End this process with the one that began it, also where that one is killed; on Linux, as others know no such thing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # which ended before
            os._exit(1)
