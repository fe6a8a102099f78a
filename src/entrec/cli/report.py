"""`entrec report`: runs side by side on one page."""

from pathlib import Path
from typing import Annotated

import typer

from entrec.cli.edge import console, failing_clearly, say


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", metavar="RUN [RUN ...]", show_default=False)],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    images: Annotated[
        bool, typer.Option("--images/--no-images", help="A map of held-out (else: training) images, and their neighbours.")
    ] = True,
    data: Annotated[str | None, typer.Option(help="The images, if not the runs' own.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Write one self-contained page about runs: curves, what the lens saw, a map of images, settings, scores.

    It needs no network and no server: send it to someone, or open it on a phone.
    """
    with failing_clearly():
        from entrec.report.report import report as write

        path = write(runs, out, images=images, data=data, device=device, overwrite=overwrite, console=console)
    say(f"Written to {path}")
