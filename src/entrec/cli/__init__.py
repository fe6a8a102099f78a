"""The `entrec` command; every command is a thin call of the library."""

from typing import Annotated

import typer

import entrec
from entrec.cli import bench, encoders, identify, lens, paper, report, train
from entrec.cli.edge import console

__all__ = ["app"]

app = typer.Typer(
    help="Entropy + reconstruction: multi-view self-supervised learning seen through one bound on mutual information.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("demo")(train.demo)
app.command("train")(train.train)
app.command("eval")(encoders.evaluate)
app.command("embed")(encoders.embed)
app.command("export")(encoders.export)
app.command("lens")(lens.lens)
app.command("report")(report.report)
app.command("identify")(identify.identify)
app.add_typer(paper.app, name="paper")
app.add_typer(bench.app, name="bench")


def _show_version(value: bool) -> None:
    if value:
        console.print(f"entrec {entrec.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Entropy + reconstruction: multi-view self-supervised learning seen through one bound on mutual information."""
