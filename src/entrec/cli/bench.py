"""`entrec bench ...`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, TextColumn
from rich.table import Table

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

    benchmark = _measured(loss, chosen)
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
    jpegs: Annotated[
        int, typer.Option(min=0, help="Train on this many JPEG files of ImageNet's size, made for it.", show_default=False)
    ] = 0,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode files. By default as `entrec train`.", show_default=False)
    ] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="As in `entrec train`; by default on a GPU.")
    ] = None,
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

    with failing_clearly():
        given = {"er": er, "backbone": backbone, "compile": compiled, **({} if workers is None else {"workers": workers})}
        chosen = train.settings(method, tuple(batch_size or ()), image_size, data, device, steps, jpegs, **given)
    require_device(chosen.run["device"])
    if out is not None:
        require_free_file(out, overwrite)
    with failing_clearly():
        benchmark = _measured(train, chosen)
    _show(train_table, benchmark, (train_table.rates(benchmark), train_table.parts(benchmark)))
    if out is not None:
        _keep(train_table, benchmark, out)


@app.command("ranks")
def bench_ranks(
    method: Annotated[str, typer.Option(help="One of simclr, cmc, ir, moco, deepcluster, swav, byol or dino.")] = "byol",
    er: Annotated[bool, typer.Option("--er/--no-er", help="The ER objective in place of the method's own loss.")] = True,
    ranks: Annotated[
        list[int] | None, typer.Option(help="Processes; repeat it for several numbers. By default 1, 2 and 4.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples in a step of each rank.")] = 64,
    backbone: Annotated[str, typer.Option(help="Any timm or torchvision model, or tiny.")] = "tiny",
    image_size: Annotated[int, typer.Option(min=8, help="Side of the random images, in pixels.")] = 32,
    steps: Annotated[int, typer.Option(min=10, help="Steps of each number of ranks.")] = 30,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for everything that was measured; the tables go beside it, as .md.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Train on several CPU processes, and see their speed, every message they send and what each computes.

    Each rank has one thread and the same batch, so that a machine with a core for each should do so many times the work.
    """
    from entrec.bench import ranks as measured
    from entrec.bench import ranks_table

    with failing_clearly():
        chosen = measured.settings(method, tuple(ranks or (1, 2, 4)), batch_size, image_size, steps, er=er, backbone=backbone)
    if out is not None:
        require_free_file(out, overwrite)
    with failing_clearly():
        benchmark = _measured(measured, chosen)
    _show(ranks_table, benchmark, (ranks_table.rates(benchmark), ranks_table.messages(benchmark), ranks_table.work(benchmark)))
    if out is not None:
        _keep(ranks_table, benchmark, out)


@app.command("lens")
def bench_lens(
    method: Annotated[str, typer.Option(help="One of simclr, cmc, ir, moco, deepcluster, swav, byol or dino.")] = "simclr",
    er: Annotated[bool, typer.Option("--er", help="The ER objective in place of the method's own loss.")] = False,
    batch_size: Annotated[
        list[int] | None, typer.Option(help="Samples in a step; repeat it for several. By default 64 and 256.")
    ] = None,
    backbone: Annotated[str, typer.Option(help="Any timm or torchvision model, or tiny.")] = "resnet18",
    image_size: Annotated[int, typer.Option(min=8, help="Side of the random images, in pixels.")] = 32,
    steps: Annotated[
        int | None, typer.Option(min=10, help="Steps of each batch size. By default 120, on a GPU 1200.", show_default=False)
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps between two looks of LensCallback.")] = 50,
    held_out: Annotated[int, typer.Option(min=2, help="Rows of its held-out data.")] = 512,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="JSON file for everything that was measured; the table goes beside it, as .md.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time what looking through the lens takes of training, as a callback and in `entrec train`."""
    from entrec.bench import lens, lens_table

    with failing_clearly():
        chosen = lens.settings(
            method, tuple(batch_size or ()), image_size, device, steps, every, held_out, er=er, backbone=backbone
        )
    require_device(chosen.run["device"])
    if out is not None:
        require_free_file(out, overwrite)
    with failing_clearly():
        benchmark = _measured(lens, chosen)
    _show(lens_table, benchmark, (lens_table.table(benchmark),))
    if out is not None:
        _keep(lens_table, benchmark, out)


@app.command("identify")
def bench_identify(
    objective: Annotated[list[str] | None, typer.Option(help="infonce or er; repeat it. By default both.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="vmf:1, normal, laplace or gennorm:3. By default all.")] = None,
    precision: Annotated[list[str] | None, typer.Option(help="32, on a GPU tf32 or bf16. By default all there are.")] = None,
    dim: Annotated[int, typer.Option(min=2, help="Latents.")] = 10,
    batch: Annotated[int | None, typer.Option(help="Pairs in a step. By default 512, on a GPU 6144.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="To be timed. By default 20, on a GPU 2000.")] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="JSON file for all of it; the table goes beside it, as .md.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
) -> None:
    """Time the experiments on identifiability, in each precision that the device has."""
    from entrec.bench import identify, identify_table

    with failing_clearly():
        chosen = identify.settings(objective or (), model or (), precision or (), dim, batch, steps, device)
        if out is not None:
            require_free_file(out, overwrite)
        benchmark = _measured(identify, chosen)
    _show(identify_table, benchmark, (identify_table.table(benchmark),))
    if out is not None:
        _keep(identify_table, benchmark, out)


def _measured(module: Any, chosen: Any) -> Any:
    """What a benchmark's `run` finds, with the part that it is at shown."""
    # Drawn only when a part begins: a thread that redraws would take time from what is timed.
    with Progress(TextColumn("{task.description}"), console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("starting")
        return module.run(chosen, lambda part: progress.update(task, description=part, refresh=True))


def _show(tables: Any, benchmark: Any, shown: Sequence[Table]) -> None:
    """Tables and what they mean, in the terminal; `tables` is the module that makes them."""
    console.print(f"{escape(tables.title(benchmark))}\n", highlight=False)
    for table in shown:
        console.print(table, "", highlight=False)
    console.print("\n".join(escape(note) for note in tables.footnotes(benchmark)), highlight=False)


def _keep(tables: Any, benchmark: Any, out: Path) -> None:
    """Everything as JSON, and the tables beside it as Markdown."""
    from entrec.bench.results import write

    write(benchmark, out)
    out.with_suffix(".md").write_text(tables.markdown(benchmark))
    console.print(f"Written to {out} and, as tables, {out.with_suffix('.md').name}", highlight=False)
