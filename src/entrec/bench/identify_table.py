"""The benchmark of the identifiability experiments as a table for a terminal or a page of Markdown, and what it means."""

from rich.table import Table

from entrec.bench import page
from entrec.bench.identify import PUBLISHED, Benchmark, sizes_of
from entrec.bench.page import empty_table
from entrec.bench.table import number

_PRECISIONS = {
    "32": "32: float32 throughout.",
    "tf32": "tf32: products of the mixing and the encoder in TF32, pairwise sums with 16-bit factors where that is fast.",
    "fp16": "fp16: products of the encoder but the last in float16, pairwise sums with 16-bit factors where that is fast.",
    "bf16": "bf16: products of the encoder but the last in bfloat16, pairwise sums with 16-bit factors where that is fast.",
}


def title(benchmark: Benchmark) -> str:
    """What was measured, where, in a line each."""
    sizes = sizes_of(benchmark)
    return f"Identifiability experiments: {sizes['dim']} latents, batch {sizes['batch']}\n{benchmark.machine.device}"


def table(benchmark: Benchmark) -> Table:
    """Steps a second."""
    found = empty_table()
    for name in ("model", "objective", "precision", "steps/s", "a step, ms", "encoder, TFLOP/s", "CUDA graph"):
        found.add_column(name, justify="right" if name[0] in "sae" else "left")
    for row in benchmark.rows:
        rates = (f"{row.steps_per_second:,.1f}", number(1e3 / row.steps_per_second), number(row.tflops))
        found.add_row(row.model, row.objective, row.precision, *rates, row.graph)
    return found


def footnotes(benchmark: Benchmark) -> list[str]:
    """What the columns mean."""
    sizes = sizes_of(benchmark)
    used = {row.precision for row in benchmark.rows}
    notes = [
        f"steps/s: of {sizes['steps']} steps, from drawing latents to Adam's update, scores left out; "
        f"brendel-group/cl-ica does {PUBLISHED:.0f} in 10 dimensions at batch 6144 on one H200.",
        "encoder, TFLOP/s: of its products, forward and backward.",
        *(text for name, text in _PRECISIONS.items() if name in used),
    ]
    return [*notes, page.BUSY] if benchmark.machine.busy else notes


def markdown(benchmark: Benchmark) -> str:
    """All of it as a page, with the command that makes it again."""
    return page.markdown(title(benchmark), benchmark.machine, command(benchmark), (table(benchmark),), footnotes(benchmark))


def command(benchmark: Benchmark) -> str:
    """The command that measures this."""
    sizes = sizes_of(benchmark)
    words = ["entrec bench identify"]
    for name in ("objective", "model", "precision"):
        words += [f"--{name} {x}" for x in dict.fromkeys(getattr(row, name) for row in benchmark.rows)]
    words += [f"--{name} {value}" for name, value in sizes.items()]
    return " ".join([*words, f"--device {benchmark.settings.device} --out FILE.json"])
