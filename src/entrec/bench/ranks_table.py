"""The benchmark of ranks as three tables for a terminal of 80 columns or a page of Markdown, and what they mean."""

from rich.table import Table

from entrec.bench import page
from entrec.bench.messages import Message, Work
from entrec.bench.page import empty_table, trained
from entrec.bench.ranks import Benchmark
from entrec.bench.table import number

_NAMES = {
    "forward": "loss, forward",
    "backward": "loss, backward",
    "memory": "queue, bank, centre",
    "logging": "a row of metrics.csv",
}


def title(benchmark: Benchmark) -> str:
    """What was measured, where, in a line each."""
    run, where = benchmark.complete, benchmark.machine
    batch = f"{benchmark.settings.batch} samples each"
    return f"Training on ranks: {trained(run)}, {batch}\n{where.device}, {where.cores} cores, a thread for each rank, gloo"


def rates(benchmark: Benchmark) -> Table:
    """Samples per second and processor time of ranks, and of as many processes that do not talk to each other."""
    found = _table("ranks", "cores", "samples/s", "a core", "apart", "kept", "CPU ms", "CPU ms\napart")
    for row in benchmark.rows:
        cells = [row.rate, row.per_core, row.apart_rate, row.kept, row.cpu_ms, row.apart_cpu_ms]
        found.add_row(str(row.ranks), str(row.cores), *map(number, cells))
    return found


def messages(benchmark: Benchmark) -> Table:
    """How many messages of each kind a rank takes part in, and the bytes that it gives to them."""
    found = _table("messages of a step: bytes", *_columns(benchmark))
    found.columns[0].justify = "left"
    for what in dict.fromkeys(_purpose(x) for row in benchmark.rows for x in row.work.messages):
        found.add_row(what, *(_sent(row.work, what) for row in benchmark.rows))
    cells = [f"{row.work.reduced:,}" if row.ranks > 1 else "-" for row in benchmark.rows]
    found.add_row("gradients summed", *cells)
    found.add_row("parameters", *(f"{row.work.parameters:,}" for row in benchmark.rows))
    return found


def work(benchmark: Benchmark) -> Table:
    """Operations of a step on one rank."""
    found = _table("operations of a step, 10^6", *_columns(benchmark))
    found.columns[0].justify = "left"
    steps = [row.work for row in benchmark.rows]
    found.add_row("networks", *(f"{sum(step.flops.values()) / 1e6:,.1f}" for step in steps))
    found.add_row("pairs of rows, in the loss", *(f"{_pairs(step) / 1e6:,.2f}" for step in steps))
    found.add_row("pairs of rows, in a row", *(f"{step.pairwise_flops['logging'] / 1e6:,.2f}" for step in steps))
    return found


def footnotes(benchmark: Benchmark) -> list[str]:
    """What the columns mean."""
    steps, every = benchmark.settings.steps, benchmark.complete["log_every"]
    notes = [
        f"samples/s: of all ranks, through the trainer's own loop, the median over the later half of {steps} steps; "
        "a core: for each core in use, at most those of the machine.",
        "apart: as many processes that train at the same time, each by itself: what the machine's cores, caches and memory "
        "leave; kept: samples/s to that, so what the messages leave of it.",
        "CPU ms: processor time of a step on one rank, which tells more than samples/s where others use the machine too.",
        "messages: how many a rank takes part in, and the bytes that it gives to them, also where it receives those of all. "
        "DistributedDataParallel sums the gradients bucket by bucket, each of them once; those of the online probe, which is a "
        "module of its own, come beside them.",
        f"a row of metrics.csv: its messages and its operations come every {every} steps only.",
        "operations: of matrix products and convolutions, forward and backward.",
    ]
    if benchmark.machine.busy:
        notes.append(page.BUSY)
    return notes


def markdown(benchmark: Benchmark) -> str:
    """All of it as a page, with the command that makes it again."""
    tables = (rates(benchmark), messages(benchmark), work(benchmark))
    return page.markdown(title(benchmark), benchmark.machine, command(benchmark), tables, footnotes(benchmark))


def command(benchmark: Benchmark) -> str:
    """The command that measures this."""
    chosen, run = benchmark.settings, benchmark.complete
    words = [f"entrec bench ranks --method {run['method']} {'--er' if run['er'] else '--no-er'} --backbone {run['backbone']}"]
    words += [f"--image-size {chosen.image_size}", *(f"--ranks {row.ranks}" for row in benchmark.rows)]
    return " ".join([*words, f"--batch-size {chosen.batch} --steps {chosen.steps} --out FILE.json"])


def _table(*names: str) -> Table:
    found = empty_table()
    for name in names:
        found.add_column(name, justify="right")
    return found


def _columns(benchmark: Benchmark) -> list[str]:
    return [f"{row.ranks} rank{'s' * (row.ranks > 1)}" for row in benchmark.rows]


def _purpose(message: Message) -> str:
    if message.gradients:
        return f"{'probe gradients' if message.part == 'probe' else 'gradients'}: {message.kind}"
    return f"{_NAMES.get(message.part, message.part)}: {message.kind}"


def _sent(step: Work, what: str) -> str:
    found = [x.bytes for x in step.messages if _purpose(x) == what]
    return f"{len(found)}: {sum(found):,}" if found else "-"


def _pairs(step: Work) -> int:
    return sum(flops for part, flops in step.pairwise_flops.items() if part != "logging")
