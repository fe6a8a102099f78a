"""`entrec bench identify`."""

from pathlib import Path
from typing import Annotated

import typer

from entrec.cli.bench.showing import measured, require_free_files, show
from entrec.cli.edge import failing_clearly


def identify(
    objective: Annotated[list[str] | None, typer.Option(help="infonce or er; repeat it. By default both.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="vmf:1, normal, laplace or gennorm:3. By default all.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="32, on a GPU tf32, fp16 or bf16. By default all there are.")
    ] = None,
    dim: Annotated[int, typer.Option(min=2, help="Latents.")] = 10,
    batch: Annotated[int | None, typer.Option(help="Pairs in a step. By default 512, on a GPU 6144.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="To be timed. By default 20, on a GPU 2000.")] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="JSON file for all of it; the table goes beside it, as .md.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time the experiments on identifiability, in each precision that the device has."""
    from entrec.bench import identify, identify_table

    with failing_clearly():
        chosen = identify.settings(objective or (), model or (), precision or (), dim, batch, steps, device)
        require_free_files(out, overwrite)
        benchmark = measured(identify, chosen)
    show(identify_table, benchmark, (identify_table.table(benchmark),), out)
