"""`entrec paper resilience` and the other experiments that are grids of runs: the same options for each."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from entrec.cli.edge import console, failing_clearly, require
from entrec.cli.paper.showing import progress_line, show_claims, show_made

if TYPE_CHECKING:  # as they take seconds to import, which `entrec --help` should not
    from entrec.paper.grid import Preset
    from entrec.paper.runner import Cell

# Here, as the help must not wait for PyTorch, which the experiments import.
SENTENCES = {
    "resilience": "The main table: what a small batch and a fast teacher cost SimCLR, BYOL and DINO, with and without ER.",
    "extended": "The extended table: also CMC, no EMA, and a continuous entropy for DINO.",
    "estimators": "Discrete against continuous entropies for DINO, Joe's against the plug-in for SimCLR.",
    "dynamics": "Entropy, reconstruction and accuracy over training: with and without ER, centring, and a teacher that learns.",
    "clustering": "SwAV, DeepCluster and DINO: the entropy of their codes over ln m.",
    "weights": "SimCLR+ER with other weights of the reconstruction: large ones collapse, and the lens says so.",
    "mi-relation": "Which bound on the mutual information each method raises, beside what is proven.",
}


class PresetName(StrEnum):
    """On which data, with which encoder, for how long."""

    quick = "quick"
    cifar10 = "cifar10"
    imagenet = "imagenet"


class Launcher(StrEnum):
    """Where runs are made."""

    local = "local"
    slurm = "slurm"


_PRESET = "quick: shapes, two minutes on a CPU; cifar10: ResNet-18, 25 epochs; imagenet: the paper's protocol."
_NEW = {"show_default": False}


def command_of(name: str) -> Callable[..., None]:
    """The command of an experiment."""

    def command(
        preset: Annotated[PresetName, typer.Option(help=_PRESET)] = PresetName.quick,
        data: Annotated[str | None, typer.Option(help="As for `entrec train`. By default the preset's.", **_NEW)] = None,
        epochs: Annotated[int | None, typer.Option(min=1, help="Of each run. By default the preset's.", **_NEW)] = None,
        images: Annotated[int | None, typer.Option(min=2, help="At most so many. By default the preset's.", **_NEW)] = None,
        seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each cell. By default the preset's.", **_NEW)] = None,
        out: Annotated[Path | None, typer.Option(help="Folder for runs and results. By default runs/PRESET.", **_NEW)] = None,
        only: Annotated[list[str] | None, typer.Option(help="Runs named like this (byol*); repeat it.", **_NEW)] = None,
        minutes: Annotated[float | None, typer.Option(min=0, help="Begin no other run after so many.", **_NEW)] = None,
        retry: Annotated[bool, typer.Option("--retry", help="Make those that failed again.")] = False,
        jobs: Annotated[int, typer.Option(min=1, help="Runs at a time. Several gain nothing on one GPU without MPS.")] = 1,
        device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
        devices: Annotated[int, typer.Option(min=1, help="Of each run, a process each.")] = 1,
        launcher: Annotated[Launcher, typer.Option(help="slurm: an array of jobs, through submitit.")] = Launcher.local,
        slurm: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for submitit; repeat it.", **_NEW)] = None,
        keep_checkpoints: Annotated[bool, typer.Option("--keep-checkpoints", help="And encoders of runs that ended.")] = False,
        render: Annotated[bool, typer.Option("--render", help="Train nothing: results of the runs that are there.")] = False,
    ) -> None:
        require("matplotlib", "scipy", extra="paper")
        from entrec.paper import grid

        folder = out or Path("runs") / preset.value
        with failing_clearly():
            if not render:
                chosen = grid.PRESETS[preset.value].reduced(data=data, epochs=epochs, images=images, seeds=seeds)
                cells = grid.begin(folder, name, chosen, seeds, only or ())
                how = _How(device, devices, jobs, minutes, retry, keep_checkpoints, launcher, slurm or [])
                if _made(folder, chosen, cells, how):
                    return
            found = grid.render(folder, name)
        show_claims(found.claims)
        console.print(f"\nThe tables are in {folder / name / 'table.md'}", highlight=False, markup=False)

    return command


class _How(NamedTuple):
    """Everything about how runs are made that does not change them."""

    device: str
    devices: int
    jobs: int
    minutes: float | None
    retry: bool
    keep: bool
    launcher: Launcher
    slurm: list[str]


def _made(folder: Path, preset: "Preset", cells: "list[Cell]", how: _How) -> bool:
    """Make the runs that are left; true where they were only asked for."""
    from entrec.paper import runner
    from entrec.paper.grid.study import pool_of

    pool = pool_of(folder, preset, how.device, how.keep, how.devices)
    left = runner.left(cells, pool, how.retry)
    if how.launcher is Launcher.slurm:
        from entrec.paper.runner.slurm import submit

        jobs = submit(left, pool, folder / "slurm", how.jobs if how.jobs > 1 else None, _options(how.slurm))
        console.print(f"{len(jobs)} jobs submitted{': ' + ', '.join(jobs) if jobs else ''}. When they have ended: --render")
        return True
    with progress_line() as say:
        made = runner.make(left, pool, how.jobs, how.minutes, say)
    show_made(made, len(cells), pool.folder)
    return False


def _options(words: list[str]) -> dict[str, Any]:
    """KEY=VALUE, numbers as numbers."""
    found: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise ValueError(f"--slurm wants KEY=VALUE, for instance slurm_partition=gpu, got {word!r}")
        found[key] = int(value) if value.isdecimal() else value
    return found
