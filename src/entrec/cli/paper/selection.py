"""`entrec paper selection`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from entrec.cli.edge import console, require, say
from entrec.cli.paper.checks import require_heard, require_place
from entrec.cli.paper.options import Retry
from entrec.cli.paper.showing import exit_by, progress_line, show_made


def selection(
    out: Annotated[Path, typer.Option(help="Folder for the runs, results.json, table.md and the figure.")] = Path(
        "runs/selection"
    ),
    data: Annotated[str, typer.Option(help="Labelled data, as for `entrec train`.")] = "shapes",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = 4,
    batch_size: Annotated[int, typer.Option(min=4, help="Images in a step, but in runs where this is what differs.")] = 64,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    images: Annotated[
        int | None, typer.Option(min=2, help="Use at most this many images to train on, and to judge by.", show_default=False)
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The encoder. By default what suits the data.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    retry: Retry = False,
    render: Annotated[
        bool, typer.Option("--render", help="Train nothing: make tables and figure from the runs that are there.")
    ] = False,
) -> None:
    """Which number, read without labels, tells which encoder is best?

    Thirty-four runs of all methods, failures included, and the rank correlation of what the lens reads with the linear probe.
    Runs that have ended are not made again, and one that was stopped goes on.
    """
    require("matplotlib", "scipy", extra="paper")
    from entrec.cli.edge import failing_clearly
    from entrec.paper import selection as experiment
    from entrec.paper.selection.grid import cells
    from entrec.paper.selection.study import GROUPS, NUMBERS

    made = None
    with failing_clearly():
        if render:
            require_heard("--render makes no runs", retry=retry)
        else:
            require_place(device)
            where = experiment.Where(data, epochs, device, batch_size, images, backbone)
            with progress_line() as progress:
                made = experiment.make(out, where, jobs, progress, retry)
            show_made(made, [cell.name for cell in cells(batch_size)], out / "runs")
        study = experiment.render(out)
    shown = Table(title=None, box=None, pad_edge=False, padding=(0, 2))
    for name in ("Spearman's correlation with the linear probe", *GROUPS):
        shown.add_column(name, justify="left" if name not in GROUPS else "right")
    for key, name in NUMBERS.items():
        values = (study.correlations[key][group][0] for group in GROUPS)
        shown.add_row(name, *("-" if value != value else f"{value:+.2f}" for value in values))
    console.print(shown, highlight=False)
    lists = {"false alarms": study.false_alarms, "missed": study.missed, "diverged": study.diverged, "failed": study.failed}
    for what, names in lists.items():
        say(f"{what}: {len(names)}{' (' + ', '.join(names) + ')' if names else ''}")
    say(f"\n{len(study.readings)} runs. Written to {out}")
    exit_by(made)
