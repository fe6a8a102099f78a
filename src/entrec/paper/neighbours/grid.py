"""The runs: every method of the benchmark by its protocol, with its own loss first."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from entrec.files import appearing, require_writable
from entrec.paper import runner
from entrec.paper.grid.fingerprint import differences, fingerprint
from entrec.paper.grid.trials import named_values
from entrec.paper.runner import Cell, Data, Made, Pool
from entrec.paper.runner.cell import opened
from entrec.training.presets import LIGHTLY

# kNN in percent, the best of 200 test epochs: lightly's documentation, CIFAR-10 benchmark, table of 27.03.2023, batch 512.
PUBLISHED = {"byol": 86.8, "simclr": 84.8, "moco": 84.7, "swav": 84.2, "dino": 81.3}
CIFAR10 = {"train": 50_000, "test": 10_000, "classes": 10}
FACTS, SEEN = "protocol.json", "seen"


@dataclass(frozen=True)
class Where:
    """What all runs share.

    Args:
        data: CIFAR-10: its name, a folder or an archive.
        epochs: of each run; the benchmark's are 200.
        backbone: the encoder; the benchmark's is a ResNet-18.
        batch_size: images in a step; the benchmark's are 512.
        images: at most so many to train on, and as many to be judged by; None for all.
    """

    data: str = str(LIGHTLY.common["data"])
    epochs: int = int(LIGHTLY.common["epochs"])
    backbone: str = str(LIGHTLY.common["backbone"])
    batch_size: int = int(LIGHTLY.common["batch_size"])
    images: int | None = None

    def facts(self) -> dict[str, Any]:
        """As JSON has them; of the data's path only its name, which is the same on every machine."""
        return {**asdict(self), "data": Path(self.data).name}

    def pool(self, out: Path, device: str = "auto", keep: bool = False) -> Pool:
        """The runs' folder, and what all are given."""
        given = {"epochs": self.epochs, "backbone": self.backbone, "batch_size": self.batch_size, "device": device}
        return Pool(out / "runs", Data(self.data, self.images), {"preset": "lightly", **given}, keep)


def name_of(method: str, er: bool, seed: int) -> str:
    """A run's folder."""
    return f"{method}{'-er' if er else ''}-seed{seed}"


def cells(seeds: int = 1) -> list[Cell]:
    """Own losses before ER, and seed by seed."""
    return [
        Cell(name_of(method, er, seed), method, {"er": er, "seed": seed})
        for seed in range(seeds)
        for er in (False, True)
        for method in PUBLISHED
    ]


def where_of(out: Path) -> Where:
    """Of the runs in a folder.

    Raises:
        ValueError: it holds none, or its protocol is damaged.
    """
    path = out / FACTS
    if not path.is_file():
        raise ValueError(f"{out} holds no runs of this benchmark: it has no {FACTS}")
    facts = named_values(path)
    facts.pop(SEEN, None)
    try:
        return Where(**facts)
    except TypeError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def seen_of(out: Path) -> dict[str, Any]:
    """What was seen of the data of the runs in a folder; nothing where it was not noted."""
    found: dict[str, Any] = named_values(out / FACTS).get(SEEN, {})
    return found


def make(
    out: Path,
    where: Where,
    wanted: Sequence[Cell],
    device: str = "auto",
    jobs: int = 1,
    minutes: float | None = None,
    retry: bool = False,
    keep: bool = False,
    progress: Callable[[str], None] = lambda part: None,
) -> Made:
    """Train what is not trained yet.

    Raises:
        ValueError: the folder holds runs of another protocol.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"runs need a folder, but {out} is a file")
    require_writable(out)
    path, facts = out / FACTS, where.facts()
    claimed = path.is_file() and any((out / "runs").glob("*"))
    if claimed:
        before = where_of(out).facts()
        told = "; ".join(f"{key} {before.get(key)} there, {facts[key]} now" for key in facts if before.get(key) != facts[key])
        if told:
            raise ValueError(f"{out} holds runs of another protocol ({told}): choose another folder")
    pool = where.pool(out, device, keep)
    left, seen = runner.left(wanted, pool, retry), seen_of(out) if claimed else {}
    if left:
        now = fingerprint(opened(pool.data))
        if seen and (differing := differences(seen, now)):
            raise ValueError(f"{out} holds runs on other data ({'; '.join(differing)}): choose another folder")
        seen = now
    facts |= {SEEN: seen} if seen else {}
    with appearing(path) as unfinished:
        unfinished.write_text(json.dumps(facts, indent=1) + "\n")
    return runner.make(left, pool, jobs, minutes, progress)
