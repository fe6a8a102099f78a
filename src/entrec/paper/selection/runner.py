"""The study's runs: each in a folder of its own, made once, several at a time where the device has room."""

import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import torch

from entrec.data import Source, open_source
from entrec.files import appearing
from entrec.paper.selection.grid import Cell, cells
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.finish import evaluation
from entrec.training.loop import DivergedError, Loop
from entrec.training.run import Run
from entrec.training.settings import settings
from entrec.training.train import train

UNTRAINED, FAILED = "untrained.json", "failed.txt"


def make(
    out: Path,
    data: str,
    epochs: int,
    device: str = "auto",
    batch: int = 64,
    jobs: int = 1,
    progress: Callable[[str], None] = lambda part: None,
) -> None:
    """Train what is not trained yet, `jobs` runs at a time, one folder in `out/runs` each."""
    (out / "runs").mkdir(parents=True, exist_ok=True)
    if not (out / UNTRAINED).is_file():
        progress("the encoder untrained")
        _score_untrained(out, data, device)
    left = [cell for cell in cells(batch) if not (out / "runs" / cell.name / "summary.json").is_file()]
    for number, name in enumerate(_made(left, (out, data, epochs, device), jobs), 1):
        progress(f"{number} of {len(left)} runs made, the last {name}")


def _made(left: list[Cell], where: tuple[Any, ...], jobs: int) -> Iterator[str]:
    """Names of cells as they end."""
    if jobs == 1:
        for cell in left:
            yield trained(cell, *where)
        return
    # Spawned, as a process that has used a GPU cannot be forked.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _share_cores, (jobs,)) as pool:
        for done in as_completed([pool.submit(trained, cell, *where) for cell in left]):
            yield done.result()


def _share_cores(jobs: int) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))


def trained(cell: Cell, out: Path, data: str, epochs: int, device: str) -> str:
    """Make one run, or what is left of one that was stopped; one that diverges is noted, and is no reason to stop the rest."""
    folder = out / "runs" / cell.name
    begun = (folder / "config.yaml").is_file()
    given = {"epochs": epochs, "evaluate_every": epochs, "device": device, **cell.given}
    try:
        train(cell.method, data=_opened(data), out=folder, resume=begun, **given)
    except DivergedError as error:
        (folder / FAILED).write_text(f"{error}\n")
    return cell.name


@cache
def _opened(data: str) -> Source:
    """Once for all of a process's runs: an archive takes longer to unpack than some of them to train."""
    return open_source(data)


def _score_untrained(out: Path, data: str, device: str) -> None:
    """The linear probe on the encoder as it is drawn, which is what learning must pass, and its standard error."""
    wanted, source = settings("simclr", {"device": device}), _opened(data)
    found = evaluation(Loop(fabric_for(wanted), assemble(wanted, source), Run(out / "unused")))
    if found is None:
        raise ValueError(f"{source.name} must have labels and a test split: a linear probe is what numbers are compared with")
    accuracy, n = found.linear.accuracy, len(source.test)  # type: ignore[arg-type]
    with appearing(out / UNTRAINED) as unfinished:
        error = math.sqrt(accuracy * (1 - accuracy) / n)
        unfinished.write_text(json.dumps({"data": source.name, "linear": accuracy, "standard_error": error}) + "\n")
