"""The benchmark of training as two tables for a terminal of 80 columns or a page of Markdown, and what they mean."""

from rich.table import Table

from entrec.bench import page
from entrec.bench.page import empty_table, trained
from entrec.bench.parts import PARTS
from entrec.bench.table import number
from entrec.bench.train_rows import Benchmark

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
    threads = "" if where.device.startswith("NVIDIA") else f", {where.threads} thread{'s' if where.threads > 1 else ''}"
    return f"Training: {trained(run)}{', ' + run['precision'] if run['precision'] else ''}\n{where.device}{threads}"


def rates(benchmark: Benchmark) -> Table:
    """Samples per second of training and of the encoder alone."""
    found = empty_table()
    ways = list(benchmark.rows[0].bare)
    encoders = ("encoder,\n" + way.replace(" and ", "\nand ") for way in ways)
    for name in ("batch", "training", *encoders, "ratio", "peak MB"):
        found.add_column(name, justify="right")
    for row in benchmark.rows:
        encoder = [f"{row.bare[way]:,.0f}" if way in row.bare else "-" for way in ways]
        cells = [f"{row.ours:,.0f}", *encoder, number(row.ratio(benchmark.limit))]
        found.add_row(str(row.batch), *cells, number(row.peak_mb))
    return found


def parts(benchmark: Benchmark) -> Table:
    """Milliseconds of a step by part, a column for each batch size."""
    found = empty_table()
    found.add_column("a step, ms")
    for row in benchmark.rows:
        found.add_column(f"batch {row.batch}", justify="right")
    for part in PARTS:
        found.add_row(_NAMES.get(part, part), *(number(row.parts[part]) for row in benchmark.rows))
    found.add_row("idle", *(number(row.idle) for row in benchmark.rows), end_section=True)
    found.add_row("all", *(number(1e3 * row.batch / row.ours) for row in benchmark.rows), style="bold", end_section=True)
    found.add_row("rows and probe, of a step", *(f"{100 * row.watching:.1f} %" for row in benchmark.rows))
    found.add_row("an epoch's checkpoint holds up, ms", *(number(row.saving[0]) for row in benchmark.rows))
    found.add_row("and is on the disk after, ms", *(number(row.saving[1]) for row in benchmark.rows))
    found.add_row("start of the run, s", *(f"{row.start[0]:.0f}" for row in benchmark.rows))
    if any(row.start[1] is not None for row in benchmark.rows):
        again = ("-" if row.start[1] is None else f"{row.start[1]:.0f}" for row in benchmark.rows)
        found.add_row("start of another in this process, s", *again)
    return found


def footnotes(benchmark: Benchmark) -> list[str]:
    """What the columns mean."""
    on_gpu = "captured" in benchmark.limit
    twice = all(row.unwatched is not None for row in benchmark.rows)
    notes = [
        f"training: samples per second through `entrec train`, the median over the later half of {benchmark.settings.steps} or "
        "more steps, with its rows and its online probe; scores and checkpoints come between steps and are not in it.",
        "encoder: alone, called as in a step (a teacher's calls without a gradient) on views that are there, and its backward.",
        f"ratio: training to the encoder, {benchmark.limit}{_turns(benchmark)}.",
        "rows and probe: what they take of training"
        + (", which was run a second time without the probe and with one row an epoch." if twice else ", from the parts."),
        "start: seconds of the run that were no steps, compiling above all, its end too; kernels that were compiled once come "
        "from a cache (TORCHINDUCTOR_CACHE_DIR: with an empty one the first start is all of it).",
        "logging: the numbers of a row of metrics.csv, over the steps between two rows.",
    ]
    for row in benchmark.rows:
        if row.decoded is not None:
            share = row.ours / row.decoded
            notes.append(
                f"Reading, decoding and cropping alone, by {row.workers} processes and with nothing done to the crops, batch "
                f"{row.batch}: {row.decoded:,.0f} samples per second, of which training reaches {number(share)}."
            )
    if not on_gpu:
        notes.append("idle: what no part accounts for; the two are measured one after the other, so it may be below zero.")
    elif all(row.replayed for row in benchmark.rows):
        notes.append(
            "Parts are the GPU's own time within the graph that training launches, but for data and logging, which are around "
            "it. idle: what they leave of a step, in which the GPU waits for the host, for data or for the next graph."
        )
    else:
        notes.append(
            "Parts are the GPU's own time, kernel by kernel as in an uncaptured step, but where the host launches kernels "
            "more slowly than they run: there a part is as long as its launches, and all together may be longer than a step."
        )
    if benchmark.machine.busy:
        notes.append(page.BUSY)
    return notes


def _turns(benchmark: Benchmark) -> str:
    """How far ratios scatter, where there are several."""
    ranges = [f"{min(row.ratios):.2f} to {max(row.ratios):.2f} at batch {row.batch}" for row in benchmark.rows if row.turns]
    if not ranges:
        return ""
    turns = len(benchmark.rows[0].turns)
    return f": the median of {turns} turns, each a run and the encoder before and after it ({', '.join(ranges)})"


def markdown(benchmark: Benchmark) -> str:
    """All of it as a page, with the command that makes it again."""
    tables = (rates(benchmark), parts(benchmark))
    return page.markdown(title(benchmark), benchmark.machine, command(benchmark), tables, footnotes(benchmark))


def command(benchmark: Benchmark) -> str:
    """The command that measures this."""
    chosen, run, on_gpu = benchmark.settings, benchmark.complete, "captured" in benchmark.limit
    words = [f"entrec bench train --method {run['method']}", *(["--er"] if run["er"] else [])]
    words += [f"--backbone {run['backbone']}"]
    words += [f"--data {chosen.run['data']}"] if chosen.image_size is None else [f"--image-size {chosen.image_size}"]
    words += [f"--jpegs {chosen.jpegs} --workers {run['workers']}"] if chosen.jpegs else []
    words += ["--no-compile"] if on_gpu and not run["compile"] else ["--compile"] if run["compile"] and not on_gpu else []
    words += [f"--precision {run['precision']}"] if run["precision"] else []
    words += [f"--batch-size {row.batch}" for row in benchmark.rows]
    return " ".join([*words, f"--steps {chosen.steps}", "--out FILE.json"])
