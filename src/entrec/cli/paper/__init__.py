"""`entrec paper ...`: a command for each experiment."""

import typer

from entrec.cli.paper.convergence import convergence
from entrec.cli.paper.grid import SENTENCES, command_of
from entrec.cli.paper.identifiability import identifiability
from entrec.cli.paper.neighbours import neighbours
from entrec.cli.paper.selection import selection

__all__ = ["app"]

_HELP = (
    "Make the paper's experiments again, one command each: runs that are there are not made again, and `--render` makes tables "
    "and figures of them alone. Experiments that train share their runs where they share a folder (`--out`)."
)
_TRAINED = "Tables and figures from training"
_KNOWN = "Where the truth is known"
_OURS = "Questions of our own"

app = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback(help=_HELP)
def paper_main() -> None:
    """Make the paper's experiments again, one command each."""


for _name, _sentence in SENTENCES.items():
    app.command(_name, help=_sentence, rich_help_panel=_TRAINED)(command_of(_name))
app.command(rich_help_panel=_KNOWN)(convergence)
app.command(rich_help_panel=_KNOWN)(identifiability)
app.command(rich_help_panel=_OURS)(neighbours)
app.command(rich_help_panel=_OURS)(selection)
