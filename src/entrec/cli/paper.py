"""`entrec paper ...`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from entrec.cli.edge import console, require, require_device, require_free

app = typer.Typer(
    help="Make the paper's experiments again, one command each.", no_args_is_help=True, rich_markup_mode="markdown"
)


@app.callback()
def paper_main() -> None:
    """Make the paper's experiments again, one command each."""


@app.command()
def convergence(
    out: Annotated[Path, typer.Option(help="Folder for results.json, table.md and the figures.")] = Path("runs/convergence"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller samples: under a minute on two cores instead of twenty.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random draw.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, ...")] = "cpu",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results that the folder holds.")] = False,
) -> None:
    """Measure every estimator against distributions whose entropy is known.

    The paper's Appendix A as an experiment: bias and variance against the number of samples k, the dimension d and the
    bandwidth h, beside the rates that the paper states and the closed forms that hold.
    """
    require("matplotlib", "scipy", extra="paper")
    require_free(out, "results.json", overwrite)
    require_device(device)
    from entrec.paper import convergence as experiment

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        study = experiment.run(quick, seed, device, lambda part: progress.update(task, description=part))
        progress.update(task, description="drawing")
        paths = experiment.write(study, out)

    console.print("The paper's statements on its estimators, measured\n", style="bold")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column()
    for finding in study.findings:
        colour = {"holds": "green", "does not hold": "red"}.get(finding.verdict, "yellow")
        text = f"[bold]{escape(finding.statement)}[/bold]\nmeasured: {escape(finding.measured)}"
        if finding.instead:
            text += f"\nwhat holds: {escape(finding.instead)}"
        if not finding.as_derived:
            text += "\n[yellow]this run does not show what we derive; more samples may (leave out --quick)[/yellow]"
        rows.add_row(f"[{colour}]{finding.verdict}[/{colour}]", text)
    console.print(rows, highlight=False)
    console.print(f"\n{study.seconds:.0f} s on {device}. Written to {out}:", highlight=False)
    console.print("  " + "  ".join(path.name for path in paths), highlight=False)


@app.command()
def selection(
    out: Annotated[Path, typer.Option(help="Folder for the runs, results.json, table.md and the figure.")] = Path(
        "runs/selection"
    ),
    data: Annotated[str, typer.Option(help="Labelled data, as for `entrec train`.")] = "shapes",
    epochs: Annotated[int, typer.Option(min=1, help="Of each run.")] = 4,
    batch_size: Annotated[int, typer.Option(min=4, help="Of each run, but of those in which it is what differs.")] = 64,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    images: Annotated[
        int | None, typer.Option(min=2, help="At most so many to train on, and to judge by.", show_default=False)
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The encoder. By default what suits the data.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    render: Annotated[
        bool, typer.Option("--render", help="Train nothing: tables and figure from the runs that are there.")
    ] = False,
) -> None:
    """Which number, read without labels, tells which encoder is best?

    Thirty-four runs of all methods, failures included, and the rank correlation of what the lens reads with the linear probe.
    Runs that have ended are not made again, and one that was stopped goes on.
    """
    require("matplotlib", "scipy", extra="paper")
    from entrec.cli.edge import failing_clearly
    from entrec.paper import selection as experiment
    from entrec.paper.selection.study import GROUPS, NUMBERS

    with failing_clearly():
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("starting")
            said = lambda part: progress.update(task, description=part)  # noqa: E731
            if not render:
                where = experiment.Where(data, epochs, device, batch_size, images, backbone)
                experiment.make(out, where, jobs, said)
            study = experiment.render(out)
    shown = Table(title=None, box=None, pad_edge=False, padding=(0, 2))
    for name in ("Spearman's correlation with the linear probe", *GROUPS):
        shown.add_column(name, justify="left" if name not in GROUPS else "right")
    for key, name in NUMBERS.items():
        values = (study.correlations[key][group][0] for group in GROUPS)
        shown.add_row(name, *("-" if value != value else f"{value:+.2f}" for value in values))
    console.print(shown, highlight=False)
    for what, names in (("false alarms", study.false_alarms), ("missed", study.missed), ("diverged", study.diverged)):
        console.print(f"{what}: {len(names)}{' (' + ', '.join(names) + ')' if names else ''}", highlight=False, markup=False)
    console.print(f"\n{len(study.readings)} runs. Written to {out}", highlight=False, markup=False)


@app.command()
def identifiability(
    table: Annotated[
        list[str] | None,
        typer.Option(help="affine, permutation or content-style; repeat it. By default all.", show_default=False),
    ] = None,
    row: Annotated[
        list[int] | None, typer.Option(help="Rows of the tables, from 1 on; repeat it. By default all.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Of each cell. By default the paper's 300,000; 50,000 for content-style.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three latents, a small network: a cell in a minute on a CPU core.")
    ] = False,
    precision: Annotated[
        str | None, typer.Option(help="Of products: 32, or on a GPU tf32 or bf16. By default 32.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for one JSON file a cell, table.md and the figures.")] = Path(
        "runs/identifiability"
    ),
    render: Annotated[bool, typer.Option("--render", help="Run nothing: the tables from the cells that are there.")] = False,
) -> None:
    """Does maximising the bound find the latents that data were made of? The tables of the paper's Appendix C.

    Cells that are there are not run again; one that is not stands in the table as not run. The paper's protocol is for a GPU.
    """
    require("matplotlib", "scipy", extra="paper")
    from dataclasses import replace
    from typing import get_args

    from entrec.cli.edge import failing_clearly
    from entrec.identifiability.words import choice
    from entrec.paper import identifiability as experiment

    with failing_clearly():
        for name in table or ():
            choice("table", name, experiment.TableName)
        tables: Any = table or get_args(experiment.TableName)
        given: dict[str, Any] = {key: x for key, x in {"steps": steps, "precision": precision}.items() if x is not None}
        scale = replace(experiment.QUICK if quick else experiment.Scale(), **given)
        wanted = experiment.cells(tables, row or (), seeds, scale)
        if not render:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            with Progress(*columns, console=console, transient=True) as progress:
                task = progress.add_task("starting")
                experiment.make(out, wanted, scale, device, lambda part: progress.update(task, description=part))
        words = ["entrec paper identifiability", *(["--quick"] if quick else []), *(f"--table {x}" for x in table or ())]
        words += [*(f"--row {x}" for x in row or ()), *(f"--{key} {x}" for key, x in given.items()), f"--seeds {seeds}"]
        path = experiment.render(out, tables, scale, " ".join(words))
    console.print(path.read_text(), highlight=False, markup=False, soft_wrap=True)
    console.print(f"Written to {path}", highlight=False, markup=False)
