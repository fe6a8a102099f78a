"""`entrec paper convergence`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from entrec.cli.edge import console, failing_clearly, require, require_device, require_free, say
from entrec.cli.paper.showing import progress_line

if TYPE_CHECKING:
    from entrec.paper.convergence import Study


def convergence(
    out: Annotated[Path, typer.Option(help="Folder for results.json, table.md and the figures.")] = Path("runs/convergence"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller samples: under a minute on two cores instead of twenty.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random draw.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, ...")] = "cpu",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results that the folder holds.")] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Measure nothing: table and figures from the results.json that is there.")
    ] = False,
) -> None:
    """Measure every estimator against distributions whose entropy is known.

    The paper's Appendix A as an experiment: bias and variance against the number of samples k, the dimension d and the
    bandwidth h, beside the rates that the paper states and the closed forms that hold.
    """
    require("matplotlib", "scipy", extra="paper")
    if not render:
        require_free(out, "results.json", overwrite)
        require_device(device)
    from entrec.paper import convergence as experiment

    with failing_clearly(), progress_line() as progress:
        study = experiment.read(out / "results.json") if render else experiment.run(quick, seed, device, progress)
        progress("drawing")
        paths = experiment.render(study, out) if render else experiment.write(study, out)
    _show(study, out, paths)


def _show(study: "Study", out: Path, paths: list[Path]) -> None:
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
    say(f"\n{study.seconds:.0f} s on {study.device}. Written to {out}:")
    console.print("  " + "  ".join(path.name for path in paths), highlight=False)
