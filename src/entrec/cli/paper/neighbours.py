"""`entrec paper neighbours`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from entrec.cli.edge import failing_clearly, require, say
from entrec.cli.paper.checks import require_heard, require_place
from entrec.cli.paper.options import NEW, Device, Jobs, Keep, Minutes, Only, Render, Retry
from entrec.cli.paper.showing import exit_by, progress_line, show_claims, show_made


def neighbours(
    data: Annotated[str, typer.Option(help="CIFAR-10: its name, a folder or an archive.")] = "cifar10",
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs. By default the benchmark's 200.", **NEW)] = None,
    backbone: Annotated[str | None, typer.Option(help="The encoder. By default the benchmark's ResNet-18.", **NEW)] = None,
    batch_size: Annotated[int | None, typer.Option(min=2, help="Images a step. By default 512.", **NEW)] = None,
    images: Annotated[int | None, typer.Option(min=2, help="Use at most this many images. By default all.", **NEW)] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of each method and objective. By default 1.", **NEW)] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and results.")] = Path("runs/neighbours"),
    only: Only = None,
    minutes: Minutes = None,
    retry: Retry = False,
    jobs: Jobs = 1,
    device: Device = "auto",
    keep_checkpoints: Keep = False,
    render: Render = False,
) -> None:
    """How accurate is it? lightly's CIFAR-10 benchmark by its protocol, and with ER in place of each loss.

    BYOL, SimCLR, MoCo, SwAV and DINO (`entrec train METHOD --preset lightly`), kNN with k = 200, beside lightly's numbers.
    """
    require("matplotlib", "scipy", extra="paper")
    from entrec.paper import neighbours as experiment
    from entrec.paper.runner import named

    made = None
    with failing_clearly():
        if render:
            require_heard("--render makes no runs", seeds=seeds, only=only, retry=retry)
        else:
            require_place(device)
            chosen = {"epochs": epochs, "backbone": backbone, "batch_size": batch_size, "images": images}
            given: dict[str, Any] = {key: x for key, x in chosen.items() if x is not None}
            where = experiment.Where(data, **given)
            cells = named(experiment.cells(seeds or 1), only or ())
            with progress_line() as progress:
                made = experiment.make(out, where, cells, device, jobs, minutes, retry, keep_checkpoints, progress)
            show_made(made, [cell.name for cell in cells], out / "runs")
        study = experiment.render(out)
    show_claims(study.claims)
    say(f"\nThe table is in {out / 'table.md'}")
    exit_by(made)
