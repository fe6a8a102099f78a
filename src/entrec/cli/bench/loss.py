"""`entrec bench loss`."""

from pathlib import Path
from typing import Annotated

import typer

from entrec.cli.bench.showing import measured, require_free_files, show
from entrec.cli.edge import fail, require_device


def loss(
    what: Annotated[
        str, typer.Option(help="The loss: entropy (of two views, Joe), er (ERLoss) or ntxent (NTXentLoss).")
    ] = "entropy",
    k: Annotated[
        list[int] | None,
        typer.Option("-k", help="Rows of each view; repeat it for several. By default 512 to 8192, on a GPU to 131072."),
    ] = None,
    d: Annotated[list[int] | None, typer.Option("-d", help="Dimension; repeat it for several. By default 128.")] = None,
    kappa: Annotated[float, typer.Option(help="Concentration of the kernel; 1 / temperature for ntxent.")] = 10.0,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, or auto: a GPU if there is one.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="fast, or ieee: on a GPU no 16-bit products, and no TF32 for others.")
    ] = "fast",
    dtype: Annotated[str, typer.Option(help="Of the projections: float64, float32, bfloat16 or float16.")] = "float32",
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Steps to time at the least. By default 3, on a GPU 20.", show_default=False)
    ] = None,
    dense_limit: Annotated[
        float | None,
        typer.Option(help="Skip what needs more GB than this. By default what does not fit in the free memory."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for everything that was measured; the table goes beside it, as .md.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time a loss, forward + backward, against dense PyTorch and lightly's NT-Xent.

    Prints time, peak memory, the gradient's distance from float64 and the share of the device's matrix-product rate, at
    sizes that take under two minutes on two cores. lightly is optional: `pip install 'entrec[bench]'`.
    """
    from entrec.bench import loss, table
    from entrec.bench.settings import settings

    try:
        chosen = settings(what, k or (), d or (128,), kappa, device, precision, dtype, repeats, dense_limit)
    except ValueError as error:
        fail(str(error))
    require_device(chosen.device)
    require_free_files(out, overwrite)

    benchmark = measured(loss, chosen)
    show(table, benchmark, (table.table(benchmark),), out)
