"""A helper process: reads one `Case` per line as JSON, answers with the growth of resident memory that a step causes.

    python -m entrec.bench.resident

PyTorch is imported once. Each case then runs in a fork of this process, which itself never computes (so it has no threads
that a fork would lose): a fork starts with clean memory, and if the system kills it, the next case still has its turn.
"""

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path

import torch

from entrec.bench.contestants import Contestant, compared
from entrec.bench.memory import Case
from entrec.bench.timing import forward_backward
from entrec.bench.views import unit_views


def main() -> None:
    """Say that the imports are done, then answer until the input ends."""
    print(json.dumps(None), flush=True)
    for line in sys.stdin:
        case = Case(**json.loads(line))
        contestants = compared(case.what, case.kappa, case.d, case.precision).contestants
        contestant = next(c for c in contestants if c.name == case.contestant)
        print(json.dumps(_in_fork(case, contestant)), flush=True)


def _in_fork(case: Case, contestant: Contestant) -> int | None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(write, str(_growth(case, contestant)).encode())
            status = 0
        except Exception:  # reported here, since a fork must not return into its parent's loop
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        text = answer.read()
    return int(text) if status == 0 else None


def _growth(case: Case, contestant: Contestant) -> int:
    torch.set_num_threads(case.threads)
    dtype = getattr(torch, case.dtype)
    # A small step first: threads, libraries and Python's own structures are no part of what a step needs.
    forward_backward(contestant.loss, contestant.leaves(unit_views(64, case.d, dtype)))
    leaves = contestant.leaves(unit_views(case.k, case.d, dtype))
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # memory that was freed but kept would otherwise be used again, unseen
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here: man 5 proc_pid_clear_refs
    before = _status("VmRSS")
    forward_backward(contestant.loss, leaves)
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main()
