"""The study's runs: each in a folder of its own, made once, several at a time where the device has room."""

import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from entrec.data import Source, open_source
from entrec.files import appearing
from entrec.paper.selection.grid import Cell, cells
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.finish import evaluation
from entrec.training.images import some
from entrec.training.loop import DivergedError, Loop
from entrec.training.run import Run
from entrec.training.settings import settings
from entrec.training.train import train

UNTRAINED, FAILED = "untrained.json", "failed.txt"


class Where(NamedTuple):
    """What all runs share.

    Args:
        data: a name, a folder or an archive.
        epochs: of each run.
        device: cpu, cuda or auto.
        batch: samples in a step, but where that is what differs.
        images: at most so many to train on, and as many to be judged by; None for all.
        backbone: None for what suits the data.
    """

    data: str
    epochs: int
    device: str = "auto"
    batch: int = 64
    images: int | None = None
    backbone: str | None = None

    @property
    def command(self) -> str:
        """That makes the study again."""
        words = [f"entrec paper selection --data {Path(self.data).name} --epochs {self.epochs} --batch-size {self.batch}"]
        words += [] if self.images is None else [f"--images {self.images}"]
        return " ".join([*words, *([] if self.backbone is None else [f"--backbone {self.backbone}"])])


def make(out: Path, where: Where, jobs: int = 1, progress: Callable[[str], None] = lambda part: None) -> None:
    """Train what is not trained yet, `jobs` runs at a time, one folder in `out/runs` each."""
    (out / "runs").mkdir(parents=True, exist_ok=True)
    _require_same(out, where)
    if not (out / UNTRAINED).is_file():
        progress("the encoder untrained")
        _score_untrained(out, where)
    left = [cell for cell in cells(where.batch) if not (out / "runs" / cell.name / "summary.json").is_file()]
    for number, name in enumerate(_made(left, out, where, jobs), 1):
        progress(f"{number} of {len(left)} runs made, the last {name}")


def _require_same(out: Path, where: Where) -> None:
    """Refuse to go on with another study's runs."""
    if (out / UNTRAINED).is_file():
        before = json.loads((out / UNTRAINED).read_text())["command"]
        if before != where.command:
            raise ValueError(f"{out} holds the runs of another study ({before}): choose another folder")


def _made(left: list[Cell], out: Path, where: Where, jobs: int) -> Iterator[str]:
    """Names of cells as they end."""
    if jobs == 1:
        for cell in left:
            yield trained(cell, out, where)
        return
    # Spawned, as a process that has used a GPU cannot be forked.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _share_cores, (jobs,)) as pool:
        for done in as_completed([pool.submit(trained, cell, out, where) for cell in left]):
            yield done.result()


def _share_cores(jobs: int) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))


def trained(cell: Cell, out: Path, where: Where) -> str:
    """Make one run, or what is left of one that was stopped; one that diverges is noted, and is no reason to stop the rest."""
    folder = out / "runs" / cell.name
    begun = (folder / "config.yaml").is_file()
    given = {"epochs": where.epochs, "evaluate_every": where.epochs, "device": where.device, **cell.given}
    try:
        train(cell.method, data=_opened(where), out=folder, resume=begun, **given)
    except DivergedError as error:
        (folder / FAILED).write_text(f"{error}\n")
    return cell.name


@cache
def _opened(where: Where) -> Source:
    """Once for all of a process's runs: an archive takes longer to unpack than some of them to train."""
    source = open_source(where.data)
    if where.images is not None:
        test = None if source.test is None else some(source.test, where.images)
        source = replace(source, train=some(source.train, where.images), test=test)
    return source if where.backbone is None else replace(source, backbone=where.backbone)


def _score_untrained(out: Path, where: Where) -> None:
    """The linear probe on the encoder as it is drawn, which is what learning must pass, and its standard error."""
    wanted, source = settings("simclr", {"device": where.device}), _opened(where)
    found = evaluation(Loop(fabric_for(wanted), assemble(wanted, source), Run(out / "unused")))
    if found is None:
        raise ValueError(f"{source.name} must have labels and a test split: a linear probe is what numbers are compared with")
    accuracy, n = found.linear.accuracy, len(source.test)  # type: ignore[arg-type]
    error = math.sqrt(accuracy * (1 - accuracy) / n)
    with appearing(out / UNTRAINED) as unfinished:
        facts = {"command": where.command, "data": source.described, "linear": accuracy, "standard_error": error}
        unfinished.write_text(json.dumps(facts, indent=1) + "\n")
