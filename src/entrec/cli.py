"""The `entrec` command; every command is a thin call of the library."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import entrec

app = typer.Typer(
    help="Entropy + reconstruction: multi-view self-supervised learning seen through one bound on mutual information.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
paper = typer.Typer(
    help="Make the paper's experiments again, one command each.", no_args_is_help=True, rich_markup_mode="markdown"
)
bench = typer.Typer(
    help="Measure speed and memory on this machine, beside what others would pay.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(paper, name="paper")
app.add_typer(bench, name="bench")
console = Console()


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


@paper.callback()
def paper_main() -> None:
    """Make the paper's experiments again, one command each."""


@paper.command()
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
    _require("matplotlib", "scipy", extra="paper")
    _require_free(out, "results.json", overwrite)
    _require_device(device)
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


@bench.callback()
def bench_main() -> None:
    """Measure speed and memory on this machine, beside what others would pay."""


@bench.command("loss")
def bench_loss(
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
        _fail(str(error))
    _require_device(chosen.device)
    if out is not None:
        _require_free_file(out, overwrite)

    # Drawn only when a part begins: a thread that redraws would take time from what is timed.
    with Progress(TextColumn("{task.description}"), console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("starting")
        benchmark = loss.run(chosen, lambda part: progress.update(task, description=part, refresh=True))

    console.print(f"{escape(table.title(benchmark))}\n", highlight=False)
    console.print(table.table(benchmark), highlight=False)
    console.print("\n" + "\n".join(escape(note) for note in table.footnotes(benchmark)), highlight=False)
    if out is not None:
        loss.write(benchmark, out)
        out.with_suffix(".md").write_text(table.markdown(benchmark))
        console.print(f"Written to {out} and, as a table, {out.with_suffix('.md').name}", highlight=False)


def _require(*modules: str, extra: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        _fail(f"this command needs {' and '.join(missing)}: pip install 'entrec[{extra}]'")


def _require_free(folder: Path, marker: str, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        _fail(f"--out must be a folder, but {folder} is a file")
    if (folder / marker).exists() and not overwrite:
        _fail(f"{folder} already holds results; choose another --out, or replace them with --overwrite")


def _require_free_file(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        _fail(f"--out must be a file, but {path} is a folder")
    if path.exists() and not overwrite:
        _fail(f"{path} already exists; choose another --out, or replace it with --overwrite")


def _require_device(device: str) -> None:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        _fail(f"--device {device} cannot be used: {str(error).splitlines()[0]}")


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(f"[red]error:[/red] {escape(message)}", highlight=False)
    raise typer.Exit(2)
