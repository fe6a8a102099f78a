"""`entrec bench ...`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress, TextColumn

from entrec.cli.edge import console, fail, failing_clearly, require_device, require_free_file

app = typer.Typer(
    help="Measure speed and memory on this machine, beside what others would pay.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.callback()
def bench_main() -> None:
    """Measure speed and memory on this machine, beside what others would pay."""


@app.command("loss")
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
    from entrec.bench.results import write
    from entrec.bench.settings import settings

    try:
        chosen = settings(what, k or (), d or (128,), kappa, device, precision, dtype, repeats, dense_limit)
    except ValueError as error:
        fail(str(error))
    require_device(chosen.device)
    if out is not None:
        require_free_file(out, overwrite)

    # Drawn only when a part begins: a thread that redraws would take time from what is timed.
    with Progress(TextColumn("{task.description}"), console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("starting")
        benchmark = loss.run(chosen, lambda part: progress.update(task, description=part, refresh=True))

    console.print(f"{escape(table.title(benchmark))}\n", highlight=False)
    console.print(table.table(benchmark), highlight=False)
    console.print("\n" + "\n".join(escape(note) for note in table.footnotes(benchmark)), highlight=False)
    if out is not None:
        write(benchmark, out)
        out.with_suffix(".md").write_text(table.markdown(benchmark))
        console.print(f"Written to {out} and, as a table, {out.with_suffix('.md').name}", highlight=False)


@app.command("train")
def bench_train(
    method: Annotated[str, typer.Option(help="One of simclr, cmc, ir, moco, deepcluster, swav, byol or dino.")] = "byol",
    er: Annotated[bool, typer.Option("--er", help="The ER objective in place of the method's own loss.")] = False,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(help="Samples in a step; repeat it for several. By default 64 and 256, on a GPU 1024 too."),
    ] = None,
    backbone: Annotated[str, typer.Option(help="Any timm or torchvision model, or tiny.")] = "resnet18",
    image_size: Annotated[int, typer.Option(min=8, help="Side of random images, in pixels.")] = 32,
    data: Annotated[
        str | None, typer.Option(help="Real data instead: a name, a folder or an archive.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the encoder (`entrec train --set compile=true`).")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=10, help="Steps of each batch size. By default 30, on a GPU 300.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for everything that was measured; the tables go beside it, as .md.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time training, beside the encoder alone, and see where a step goes.

    The encoder's forward and backward on the same views, already on the device, are the limit that training approaches.
    """
    from entrec.bench import train, train_table
    from entrec.bench.results import write

    with failing_clearly():
        chosen = train.settings(
            method, tuple(batch_size or ()), image_size, data, device, steps, er=er, backbone=backbone, compile=compiled
        )
    require_device(chosen.run["device"])
    if out is not None:
        require_free_file(out, overwrite)
    with (
        failing_clearly(),
        Progress(TextColumn("{task.description}"), console=console, transient=True, auto_refresh=False) as progress,
    ):
        task = progress.add_task("starting")
        benchmark = train.run(chosen, lambda part: progress.update(task, description=part, refresh=True))
    console.print(f"{escape(train_table.title(benchmark))}\n", highlight=False)
    for shown in (train_table.rates(benchmark), train_table.parts(benchmark)):
        console.print(shown, "", highlight=False)
    console.print("\n".join(escape(note) for note in train_table.footnotes(benchmark)), highlight=False)
    if out is not None:
        write(benchmark, out)
        out.with_suffix(".md").write_text(train_table.markdown(benchmark))
        console.print(f"Written to {out} and, as tables, {out.with_suffix('.md').name}", highlight=False)
