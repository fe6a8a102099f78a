"""The benchmark of training as two tables for a terminal of 80 columns or a page of Markdown, and what they mean."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from entrec.bench.parts import PARTS
from entrec.bench.table import number
from entrec.bench.train import Benchmark

_NAMES = {
    "views": "views (crops, colours)",
    "forward": "forward (branches)",
    "memory": "teacher, queue, bank, centre",
    "probe": "online probe",
    "logging": "logging (a row's share)",
}


def title(benchmark: Benchmark) -> str:
    """What was measured, where, in a line each."""
    run, where = benchmark.complete, benchmark.machine
    what = f"{run['method']}{' + ER' if run['er'] else ''}, {run['backbone']}, views of {run['image_size']} pixels"
    threads = "" if benchmark.machine.device.startswith("NVIDIA") else f", {where.threads} threads"
    return f"Training: {what}\n{where.device}{threads}"


def rates(benchmark: Benchmark) -> Table:
    """Samples per second of training and of the encoder alone."""
    found = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    ways = list(benchmark.rows[0].bare)
    for name in ("batch", "training", *("encoder,\n" + way.replace(" and ", "\nand ") for way in ways), "ratio", "peak MB"):
        found.add_column(name, justify="right")
    for row in benchmark.rows:
        encoder = [f"{row.bare[way]:,.0f}" if way in row.bare else "-" for way in ways]
        cells = [f"{row.ours:,.0f}", *encoder, number(row.ratio(benchmark.limit))]
        found.add_row(str(row.batch), *cells, number(row.peak_mb))
    return found


def parts(benchmark: Benchmark) -> Table:
    """Milliseconds of a step by part, a column for each batch size."""
    found = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    found.add_column("a step, ms")
    for row in benchmark.rows:
        found.add_column(f"batch {row.batch}", justify="right")
    for part in PARTS:
        found.add_row(_NAMES.get(part, part), *(number(row.parts[part]) for row in benchmark.rows))
    found.add_row("idle", *(number(row.idle) for row in benchmark.rows), end_section=True)
    found.add_row("all", *(number(1e3 * row.batch / row.ours) for row in benchmark.rows), style="bold")
    return found


def footnotes(benchmark: Benchmark) -> list[str]:
    """What the columns mean."""
    on_gpu = "captured" in benchmark.limit
    notes = [
        f"training: samples per second through `entrec train`, the median over the later half of {benchmark.settings.steps} or "
        "more steps, with its rows and its online probe; scores and checkpoints come between steps and are not in it.",
        "encoder: alone, called as in a step (a teacher's calls without a gradient) on views that are there, and its backward.",
        f"ratio: training to the encoder, {benchmark.limit}.",
        "logging: the numbers of a row of metrics.csv, over the steps between two rows.",
    ]
    if on_gpu:
        notes.append(
            "Parts are the GPU's own time, kernel by kernel as in an uncaptured step; idle is the rest of a step as it is "
            "trained, and below zero where capture or compilation made the whole faster than its parts."
        )
    else:
        notes.append("idle: what no part accounts for; the two are measured one after the other, so it may be below zero.")
    if benchmark.machine.busy:
        notes.append("The machine was busy when this began: the times are too long. Measure again when it is not.")
    return notes


def markdown(benchmark: Benchmark) -> str:
    """All of it as a page, with the command that makes it again."""
    first, where = title(benchmark).split("\n")
    versions = ", ".join(f"{name} {version}" for name, version in benchmark.machine.versions.items() if version)
    lines = [f"# {first}", "", f"{where}; {versions}.", "", f"    {command(benchmark)}", ""]
    for shown in (rates(benchmark), parts(benchmark)):
        names = [str(column.header).replace("\n", " ") for column in shown.columns]
        lines += ["| " + " | ".join(names) + " |", "|" + "---:|" * len(names)]
        lines += ["| " + " | ".join(map(str, cells)) + " |" for cells in zip(*(c.cells for c in shown.columns), strict=True)]
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in footnotes(benchmark)), ""])


def command(benchmark: Benchmark) -> str:
    """The command that measures this."""
    chosen, run = benchmark.settings, benchmark.complete
    words = [f"entrec bench train --method {run['method']}", *(["--er"] if run["er"] else [])]
    words += [f"--backbone {run['backbone']}"]
    words += [f"--data {chosen.run['data']}"] if chosen.image_size is None else [f"--image-size {chosen.image_size}"]
    words += [*(["--compile"] if run["compile"] else []), *(f"--batch-size {row.batch}" for row in benchmark.rows)]
    return " ".join([*words, f"--steps {chosen.steps}", "--out FILE.json"])
