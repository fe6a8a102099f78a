"""`entrec bench data`."""

from pathlib import Path
from typing import Annotated

import typer

from entrec.cli.bench.showing import measured, require_free_files, show
from entrec.cli.edge import failing_clearly


def data(
    files: Annotated[int, typer.Option(help="Small files in the folder that is opened.")] = 20_000,
    jpegs: Annotated[int, typer.Option(help="Files of ImageNet's size that are decoded.")] = 2048,
    workers: Annotated[
        list[int] | None, typer.Option(help="Processes that decode; repeat it. By default 1 and all cores.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file for all of it; the table goes beside it, as .md.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time how files become batches: opening a large folder, decoding photographs, and cropping views of them."""
    from entrec.bench import data, data_table

    with failing_clearly():
        chosen = data.settings(files, jpegs, tuple(workers or ()))
        require_free_files(out, overwrite)
        benchmark = measured(data, chosen)
    show(data_table, benchmark, (data_table.table(benchmark),), out)
