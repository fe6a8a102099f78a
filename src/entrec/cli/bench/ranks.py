"""`entrec bench ranks`."""

from pathlib import Path
from typing import Annotated

import typer

from entrec.cli.bench.showing import measured, require_free_files, show
from entrec.cli.edge import failing_clearly


def ranks(
    method: Annotated[str, typer.Option(help="One of simclr, cmc, ir, moco, deepcluster, swav, byol or dino.")] = "byol",
    er: Annotated[bool, typer.Option("--er/--no-er", help="The ER objective in place of the method's own loss.")] = True,
    ranks: Annotated[
        list[int] | None, typer.Option(help="Processes; repeat it for several numbers. By default 1, 2 and 4.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples in a step of each rank.")] = 64,
    backbone: Annotated[str, typer.Option(help="Any timm or torchvision model, or tiny.")] = "tiny",
    image_size: Annotated[int, typer.Option(min=8, help="Side of the random images, in pixels.")] = 32,
    steps: Annotated[int, typer.Option(min=10, help="Steps of each number of ranks.")] = 30,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for everything that was measured; the tables go beside it, as .md.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Train on several CPU processes, and see their speed, every message they send and what each computes.

    Each rank has one thread and the same batch, so that a machine with a core for each should do so many times the work.
    """
    from entrec.bench import ranks as trained
    from entrec.bench import ranks_table

    with failing_clearly():
        chosen = trained.settings(method, tuple(ranks or (1, 2, 4)), batch_size, image_size, steps, er=er, backbone=backbone)
    require_free_files(out, overwrite)
    with failing_clearly():
        benchmark = measured(trained, chosen)
    show(
        ranks_table,
        benchmark,
        (ranks_table.rates(benchmark), ranks_table.messages(benchmark), ranks_table.work(benchmark)),
        out,
    )
