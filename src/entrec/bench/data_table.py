"""The benchmark of files as a table for a terminal or a page of Markdown, and what it means."""

from rich.table import Table

from entrec.bench import page
from entrec.bench.data import Benchmark
from entrec.bench.page import empty_table
from entrec.bench.table import number


def title(benchmark: Benchmark) -> str:
    """What was measured, where, in a line each."""
    return f"From files to batches\n{benchmark.machine.device}, {benchmark.machine.cores} cores"


def table(benchmark: Benchmark) -> Table:
    """A line for each."""
    found, chosen = empty_table(), benchmark.settings
    found.add_column("what")
    found.add_column("measured", justify="right")
    found.add_row(f"open a folder of {chosen.files:,} files, the first time", f"{number(benchmark.opened)} s")
    found.add_row("open it again", f"{number(benchmark.reopened)} s")
    found.add_row("decode a photograph, one thread", f"{benchmark.decoded:,.0f} images/s")
    for workers, rate in benchmark.cropped.items():
        processes = "1 process" if workers == 1 else f"{workers} processes"
        found.add_row(f"decode and crop two views of it, {processes}", f"{rate:,.0f} samples/s")
    return found


def footnotes(benchmark: Benchmark) -> list[str]:
    """What the lines mean."""
    notes = [
        "open: `entrec.data.open_source`, to where batches could begin. The files are in 100 sub-folders, and their list is "
        "kept: the second time only sub-folders are asked whether they have changed.",
        "photographs: JPEG files of 500 x 375 pixels and about 110 kB, as in ImageNet.",
        "crop: as in training at 224 pixels, from files on the disk to batches.",
    ]
    return [*notes, page.BUSY] if benchmark.machine.busy else notes


def markdown(benchmark: Benchmark) -> str:
    """All of it as a page, with the command that makes it again."""
    return page.markdown(title(benchmark), benchmark.machine, command(benchmark), (table(benchmark),), footnotes(benchmark))


def command(benchmark: Benchmark) -> str:
    """The command that measures this."""
    chosen = benchmark.settings
    words = ["entrec bench data", f"--files {chosen.files}", f"--jpegs {chosen.jpegs}"]
    return " ".join([*words, *(f"--workers {x}" for x in chosen.workers), "--out FILE.json"])
