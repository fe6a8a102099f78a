"""`entrec bench lens`."""

from pathlib import Path
from typing import Annotated

import typer

from entrec.cli.bench.showing import measured, require_free_files, show
from entrec.cli.edge import failing_clearly, require_device


def lens(
    method: Annotated[str, typer.Option(help="One of simclr, cmc, ir, moco, deepcluster, swav, byol or dino.")] = "simclr",
    er: Annotated[bool, typer.Option("--er", help="The ER objective in place of the method's own loss.")] = False,
    batch_size: Annotated[
        list[int] | None, typer.Option(help="Samples in a step; repeat it for several. By default 64 and 256.")
    ] = None,
    backbone: Annotated[str, typer.Option(help="Any timm or torchvision model, or tiny.")] = "resnet18",
    image_size: Annotated[int, typer.Option(min=8, help="Side of the random images, in pixels.")] = 32,
    steps: Annotated[
        int | None, typer.Option(min=10, help="Steps of each batch size. By default 120, on a GPU 1200.", show_default=False)
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps between two looks of LensCallback.")] = 100,
    held_out: Annotated[int, typer.Option(min=2, help="Rows of its held-out data.")] = 512,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="JSON file for everything that was measured; the table goes beside it, as .md.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time what looking through the lens takes of training, as a callback and in `entrec train`."""
    from entrec.bench import lens, lens_table

    with failing_clearly():
        chosen = lens.settings(
            method, tuple(batch_size or ()), image_size, device, steps, every, held_out, er=er, backbone=backbone
        )
    require_device(chosen.run["device"])
    require_free_files(out, overwrite)
    with failing_clearly():
        benchmark = measured(lens, chosen)
    show(lens_table, benchmark, (lens_table.table(benchmark),), out)
