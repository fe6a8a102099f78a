"""`entrec paper neighbours`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from entrec.cli.edge import console, failing_clearly, require
from entrec.cli.paper.showing import progress_line, show_claims, show_made

_NEW = {"show_default": False}


def neighbours(
    data: Annotated[str, typer.Option(help="CIFAR-10: its name, a folder or an archive.")] = "cifar10",
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each run. By default the benchmark's 200.", **_NEW)] = None,
    backbone: Annotated[str | None, typer.Option(help="By default the benchmark's ResNet-18.", **_NEW)] = None,
    batch_size: Annotated[int | None, typer.Option(min=2, help="By default the benchmark's 512.", **_NEW)] = None,
    images: Annotated[int | None, typer.Option(min=2, help="At most so many. By default all.", **_NEW)] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method and objective.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for runs and results.")] = Path("runs/neighbours"),
    only: Annotated[list[str] | None, typer.Option(help="Runs named like this (byol*); repeat it.", **_NEW)] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Begin no other run after so many.", **_NEW)] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Make those that failed again.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time. Several gain nothing on one GPU without MPS.")] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    keep_checkpoints: Annotated[bool, typer.Option("--keep-checkpoints", help="And encoders of runs that ended.")] = False,
    render: Annotated[bool, typer.Option("--render", help="Train nothing: results of the runs that are there.")] = False,
) -> None:
    """How accurate is it? lightly's CIFAR-10 benchmark by its protocol, and with ER in place of each loss.

    BYOL, SimCLR, MoCo, SwAV and DINO (`entrec train METHOD --preset lightly`), kNN with k = 200, beside lightly's numbers.
    """
    require("matplotlib", "scipy", extra="paper")
    from entrec.paper import neighbours as experiment
    from entrec.paper.runner import named

    with failing_clearly():
        if not render:
            chosen = {"epochs": epochs, "backbone": backbone, "batch_size": batch_size, "images": images}
            given: dict[str, Any] = {key: x for key, x in chosen.items() if x is not None}
            where = experiment.Where(data, **given)
            cells = named(experiment.cells(seeds), only or ())
            with progress_line() as say:
                made = experiment.make(out, where, cells, device, jobs, minutes, retry, keep_checkpoints, say)
            show_made(made, len(cells), out / "runs")
        study = experiment.render(out)
    show_claims(study.claims)
    console.print(f"\nThe table is in {out / 'table.md'}", highlight=False, markup=False)
