"""`entrec bench train`."""

from pathlib import Path
from typing import Annotated

import typer

from entrec.cli.bench.showing import measured, require_free_files, show
from entrec.cli.edge import failing_clearly, require_device


def train(
    method: Annotated[str, typer.Option(help="One of simclr, cmc, ir, moco, deepcluster, swav, byol or dino.")] = "byol",
    er: Annotated[bool, typer.Option("--er", help="The ER objective in place of the method's own loss.")] = False,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(help="Samples in a step; repeat it for several. By default 64 and 256, on a GPU 1024 too."),
    ] = None,
    backbone: Annotated[str, typer.Option(help="Any timm or torchvision model, or tiny.")] = "resnet18",
    image_size: Annotated[int, typer.Option(min=8, help="Side of random images, in pixels.")] = 32,
    data: Annotated[
        str | None, typer.Option(help="Real data instead: a name, a folder or an archive.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    jpegs: Annotated[
        int, typer.Option(min=0, help="Train on this many JPEG files of ImageNet's size, made for it.", show_default=False)
    ] = 0,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode files. By default as `entrec train`.", show_default=False)
    ] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="As in `entrec train`; by default on a GPU.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="32 or bf16, as in `entrec train`; by default bf16 on a GPU.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=10, help="Steps of each batch size. By default 30, on a GPU 300.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for everything that was measured; the tables go beside it, as .md.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time training, beside the encoder alone, and see where a step goes.

    The encoder's forward and backward on the same views, already on the device, are the limit that training approaches.
    """
    from entrec.bench import train, train_table

    with failing_clearly():
        given = {"er": er, "backbone": backbone, "compile": compiled, "precision": precision}
        given |= {} if workers is None else {"workers": workers}
        chosen = train.settings(method, tuple(batch_size or ()), image_size, data, device, steps, jpegs, **given)
    require_device(chosen.run["device"])
    require_free_files(out, overwrite)
    with failing_clearly():
        benchmark = measured(train, chosen)
    show(train_table, benchmark, (train_table.rates(benchmark), train_table.parts(benchmark)), out)
