"""`entrec paper resilience` and the other experiments that are grids of runs: the same options for each."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from entrec.cli.edge import fail, failing_clearly, require, say
from entrec.cli.paper.checks import require_all_images, require_heard, require_place
from entrec.cli.paper.options import NEW, Device, Jobs, Keep, Minutes, Only, Precision, Render, Retry
from entrec.cli.paper.showing import exit_by, progress_line, show_claims, show_made

if TYPE_CHECKING:  # as they take seconds to import, which `entrec --help` should not
    from entrec.paper.grid import Preset
    from entrec.paper.runner import Cell, Made

# Here, as the help must not wait for PyTorch, which the experiments import.
SENTENCES = {
    "all": "All of these, with every run made once: those that carry a claim first.",
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
    cifar10_tiny = "cifar10-tiny"
    cifar10 = "cifar10"
    imagenet = "imagenet"


class Launcher(StrEnum):
    """Where runs are made."""

    local = "local"
    slurm = "slurm"


_PRESET = (
    "quick: shapes and few epochs, for a CPU; cifar10: ResNet-18, 25 epochs; cifar10-tiny: the same with a small encoder; "
    "imagenet: the paper's protocol."
)


def command_of(name: str) -> Callable[..., None]:
    """The command of an experiment."""

    def command(
        preset: Annotated[PresetName, typer.Option(help=_PRESET)] = PresetName.quick,
        data: Annotated[str | None, typer.Option(help="Data, as for `entrec train`. By default the preset's.", **NEW)] = None,
        epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each run. By default the preset's.", **NEW)] = None,
        images: Annotated[
            int | None, typer.Option(min=2, help="Use at most this many images. By default the preset's.", **NEW)
        ] = None,
        seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of each setting. By default the preset's.", **NEW)] = None,
        out: Annotated[Path | None, typer.Option(help="Folder for runs and results. By default runs/PRESET.", **NEW)] = None,
        only: Only = None,
        minutes: Minutes = None,
        retry: Retry = False,
        jobs: Jobs = 1,
        device: Device = "auto",
        devices: Annotated[int, typer.Option(min=1, help="GPUs (processes) for each run.")] = 1,
        precision: Precision = None,
        launcher: Annotated[Launcher, typer.Option(help="slurm: an array of jobs, through submitit.")] = Launcher.local,
        slurm: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for submitit; repeat it.", **NEW)] = None,
        keep_checkpoints: Keep = False,
        render: Render = False,
    ) -> None:
        require("matplotlib", "scipy", extra="paper")
        from entrec.paper import grid

        folder, made = out or Path("runs") / preset.value, None
        with failing_clearly():
            how = _How(device, devices, precision, jobs, minutes, retry, keep_checkpoints, launcher, slurm or [])
            if render:
                unheard = {"epochs": epochs, "images": images, "seeds": seeds, "only": only, "minutes": minutes, "retry": retry}
                require_heard("--render makes no runs", **unheard, precision=precision, slurm=slurm)
            else:
                chosen = grid.PRESETS[preset.value].reduced(data=data, epochs=epochs, images=images, seeds=seeds)
                require_all_images(devices, chosen.images, asked=images is not None)
                how.check()
                cells = grid.begin(folder, name, chosen, seeds, only or ())
                if launcher is Launcher.slurm:
                    _submit(folder, chosen, cells, how)
                    return
                made = _make(folder, chosen, cells, how)
            lost = _render(folder, name)
        if lost:
            fail("\n".join(lost))
        exit_by(made)

    return command


class _How(NamedTuple):
    """Everything about how runs are made that does not change them."""

    device: str
    devices: int
    precision: str | None
    jobs: int
    minutes: float | None
    retry: bool
    keep: bool
    launcher: Launcher
    slurm: list[str]

    def check(self) -> None:
        """Refuse what no run could be made with, and what would not be heard."""
        if self.launcher is Launcher.slurm:  # whose machines have other devices than this one
            require_heard("a cluster's jobs have a limit of their own (--slurm timeout_min=...)", minutes=self.minutes)
            _options(self.slurm)
            require("submitit", extra="slurm")
        else:
            require_heard("it is for --launcher slurm", slurm=self.slurm)
            require_place(self.device, self.devices)


def _make(folder: Path, preset: "Preset", cells: "list[Cell]", how: _How) -> "Made":
    """Make the runs that are left."""
    from entrec.paper import runner
    from entrec.paper.grid.study import pool_of

    pool = pool_of(folder, preset, how.device, how.keep, how.devices, how.precision)
    with progress_line() as progress:
        made = runner.make(runner.left(cells, pool, how.retry), pool, how.jobs, how.minutes, progress)
    show_made(made, [cell.name for cell in cells], pool.folder)
    return made


def _submit(folder: Path, preset: "Preset", cells: "list[Cell]", how: _How) -> None:
    """Ask a cluster for the runs that are left."""
    from entrec.paper import runner
    from entrec.paper.grid.study import pool_of
    from entrec.paper.runner.slurm import submit

    pool = pool_of(folder, preset, how.device, how.keep, how.devices, how.precision)
    left = runner.left(cells, pool, how.retry)
    jobs = submit(left, pool, folder / "slurm", how.jobs if how.jobs > 1 else None, _options(how.slurm))
    say(f"{len(jobs)} jobs submitted{': ' + ', '.join(jobs) if jobs else ''}. When they have ended: --render")


def _render(folder: Path, name: str) -> list[str]:
    """Write and show the tables of a name; returns why some were not written, which is no reason to do without the others."""
    from entrec.paper import grid

    lost = []
    for each in grid.names_of(name):
        try:
            results = grid.render(folder, each)
        except grid.LostError as error:
            lost.append(str(error))
            continue
        show_claims(results.claims)
        say(f"\nThe tables are in {folder / each / 'table.md'}")
    return lost


def _options(words: list[str]) -> dict[str, Any]:
    """KEY=VALUE, numbers as numbers."""
    found: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise ValueError(f"--slurm wants KEY=VALUE, for instance slurm_partition=gpu, got {word!r}")
        found[key] = int(value) if value.isdecimal() else value
    return found
