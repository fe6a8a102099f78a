"""`entrec bench ...`: a command for each thing that can be slow."""

import typer

from entrec.cli.bench.data import data
from entrec.cli.bench.identify import identify
from entrec.cli.bench.lens import lens
from entrec.cli.bench.loss import loss
from entrec.cli.bench.ranks import ranks
from entrec.cli.bench.train import train

__all__ = ["app"]

app = typer.Typer(
    help="Measure speed and memory on this machine, beside what others would pay.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.callback()
def bench_main() -> None:
    """Measure speed and memory on this machine, beside what others would pay."""


for _command in (loss, train, data, ranks, lens, identify):
    app.command()(_command)
