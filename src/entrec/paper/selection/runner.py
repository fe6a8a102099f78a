"""The study's runs, and the encoder untrained, which is what learning must pass."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from entrec.files import appearing, require_writable
from entrec.paper import runner
from entrec.paper.runner import Data, Made, Pool, opened
from entrec.paper.selection.grid import cells
from entrec.training.assemble import assemble
from entrec.training.devices import fabric_for
from entrec.training.finish import evaluation
from entrec.training.loop import Loop
from entrec.training.run import Run
from entrec.training.settings import settings

UNTRAINED = "untrained.json"


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

    def pool(self, out: Path) -> Pool:
        """The runs' folder, and what all are given."""
        given = {"epochs": self.epochs, "evaluate_every": self.epochs, "device": self.device}
        return Pool(out / "runs", Data(self.data, self.images, self.backbone), given)


def make(
    out: Path,
    where: Where,
    jobs: int = 1,
    progress: Callable[[str], None] = lambda part: None,
    retry: bool = False,
) -> Made:
    """Train what is not trained yet, `jobs` runs at a time, one folder in `out/runs` each; with `retry` what failed too."""
    require_writable(out)
    out.mkdir(parents=True, exist_ok=True)
    _require_same(out, where)
    if not (out / UNTRAINED).is_file():
        progress("the encoder untrained")
        _score_untrained(out, where)
    pool = where.pool(out)
    return runner.make(runner.left(cells(where.batch), pool, retry), pool, jobs, progress=progress)


def _require_same(out: Path, where: Where) -> None:
    """Refuse to go on with another study's runs."""
    if (out / UNTRAINED).is_file():
        before = json.loads((out / UNTRAINED).read_text())["command"]
        if before != where.command:
            raise ValueError(f"{out} holds the runs of another study ({before}): choose another folder")


def _score_untrained(out: Path, where: Where) -> None:
    """The linear probe on the encoder as it is drawn, which is what learning must pass, and its standard error."""
    wanted, source = settings("simclr", {"device": where.device}), opened(where.pool(out).data)
    found = evaluation(Loop(fabric_for(wanted), assemble(wanted, source), Run(out / "unused")))
    if found is None:
        raise ValueError(f"{source.name} must have labels and a test split: a linear probe is what numbers are compared with")
    accuracy, n = found.linear.accuracy, len(source.test)  # type: ignore[arg-type]
    error = math.sqrt(accuracy * (1 - accuracy) / n)
    with appearing(out / UNTRAINED) as unfinished:
        facts = {"command": where.command, "data": source.described, "linear": accuracy, "standard_error": error}
        unfinished.write_text(json.dumps(facts, indent=1) + "\n")
