"""The benchmark of the lens as a table for a terminal of 80 columns or a page of Markdown, and what it means."""

from rich.table import Table

from entrec.bench import page
from entrec.bench.lens import Benchmark
from entrec.bench.page import empty_table, trained
from entrec.bench.table import number


def title(benchmark: Benchmark) -> str:
    """What was measured, where, in a line each."""
    return f"What looking costs: {trained(benchmark.complete)}\n{benchmark.machine.device}"


def table(benchmark: Benchmark) -> Table:
    """Shares of the lens in training's time."""
    found = empty_table()
    for name in ("batch", "way", "looks", "a look, ms", "a step, ms", "share"):
        found.add_column(name, justify="left" if name == "way" else "right")
    for row in benchmark.rows:
        times = (number(row.look_ms), number(row.step_ms), f"{row.share:.2%}")
        found.add_row(str(row.batch), row.way, str(row.looks), *times)
    return found


def footnotes(benchmark: Benchmark) -> list[str]:
    """What the columns mean."""
    chosen = benchmark.settings
    notes = [
        f"LensCallback: every {chosen.every} of {chosen.steps} steps at the batch; with held-out data ({chosen.held_out} rows) "
        "at these too, as seldom as keeps them near 0.5 % of training, at the first look and at the end.",
        f"entrec train: at held-out views every {benchmark.complete['evaluate_every']} epochs, as in a run of "
        f"{benchmark.complete['epochs']} of {min(8192, chosen.steps * benchmark.rows[0].batch):,} images.",
        "share: of the time within the lens in all of it, device and host.",
    ]
    return [*notes, page.BUSY] if benchmark.machine.busy else notes


def markdown(benchmark: Benchmark) -> str:
    """All of it as a page, with the command that makes it again."""
    return page.markdown(title(benchmark), benchmark.machine, command(benchmark), (table(benchmark),), footnotes(benchmark))


def command(benchmark: Benchmark) -> str:
    """The command that measures this."""
    chosen, run = benchmark.settings, benchmark.complete
    words = [f"entrec bench lens --method {run['method']}", *(["--er"] if run["er"] else []), f"--backbone {run['backbone']}"]
    words += [f"--image-size {chosen.image_size}", *(f"--batch-size {batch}" for batch in chosen.batches)]
    return " ".join([*words, f"--steps {chosen.steps} --every {chosen.every} --held-out {chosen.held_out} --out FILE.json"])
