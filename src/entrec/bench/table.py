"""The benchmark of a loss as a table for a terminal of 100 columns, and what its columns mean."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from entrec.bench.contestants import LIGHTLY, OURS
from entrec.bench.loss import REFERENCE_UP_TO
from entrec.bench.results import Benchmark, Row

_TITLES = {
    "entropy": "Entropy of two views (Joe, von Mises-Fisher kernel, kappa {kappa:g})",
    "er": "ERLoss of two views (plug-in, von Mises-Fisher, kappa {kappa:g})",
    "ntxent": "NTXentLoss of two views (temperature {temperature:g})",
}


def title(benchmark: Benchmark) -> str:
    """What was measured, where, in one line each."""
    chosen, machine = benchmark.settings, benchmark.machine
    what = _TITLES[chosen.what].format(kappa=chosen.kappa, temperature=1 / chosen.kappa)
    where = (
        machine.device
        if _on_cuda(benchmark)
        else f"{machine.device}, {machine.threads} thread{'s' if machine.threads > 1 else ''}"
    )
    return f"{what}: forward + backward\n{where}; {chosen.dtype}, precision {chosen.precision}"


def table(benchmark: Benchmark) -> Table:
    """One line per contestant, a block per size."""
    on_cuda, ours = _on_cuda(benchmark), {(row.k, row.d): row.ms for row in benchmark.rows if row.contestant == OURS}
    rows = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    rows.add_column("k", justify="right")
    rows.add_column("d", justify="right")
    rows.add_column("", no_wrap=True)
    for name in ("ms", *(["in a\nrow ms"] if on_cuda else []), "x ours", "peak\nMB", "gradient\nerror", "of\nproducts"):
        rows.add_column(name, justify="right")
    for i, row in enumerate(benchmark.rows):
        last = i + 1 == len(benchmark.rows) or (row.k, row.d) != (benchmark.rows[i + 1].k, benchmark.rows[i + 1].d)
        cells = [row.note or number(row.ms), *([number(row.back_to_back_ms)] if on_cuda else [])]
        cells += [_times(row, ours.get((row.k, row.d))), number(row.peak_mb), _error(row), _percent(row)]
        style = "bold" if row.contestant == OURS else None
        rows.add_row(str(row.k), str(row.d), row.contestant, *cells, style=style, end_section=last)
    return rows


def markdown(benchmark: Benchmark) -> str:
    """The same as a page of Markdown, with the command that makes it again."""
    shown = table(benchmark)
    names = [str(column.header).replace("\n", " ") for column in shown.columns]
    lines = list(zip(*(column.cells for column in shown.columns), strict=True))
    chosen = benchmark.settings
    command = f"entrec bench loss --what {chosen.what} --precision {chosen.precision} --kappa {chosen.kappa:g}"
    sizes = " ".join([*(f"-k {k}" for k in chosen.k), *(f"-d {d}" for d in chosen.d)])
    versions = ", ".join(f"{name} {version}" for name, version in benchmark.machine.versions.items() if version)
    first, where = title(benchmark).split("\n")
    return "\n".join(
        [
            f"# {first}",
            "",
            f"{where}; {versions}.",
            "",
            f"    {command} {sizes} --out FILE.json",
            "",
            "| " + " | ".join(names) + " |",
            "|" + "---:|" * 2 + "---|" + "---:|" * (len(names) - 3),
            *("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines),
            "",
            *(f"- {note}" for note in footnotes(benchmark)),
            "",
        ]
    )


def footnotes(benchmark: Benchmark) -> list[str]:
    """What the columns mean, and what is missing."""
    chosen, rate, on_cuda = benchmark.settings, benchmark.product_rate, _on_cuda(benchmark)
    notes = [f"ms: median of {chosen.repeats} or more steps through autograd, gradients new in each."]
    if on_cuda:
        notes.append("in a row: a step's share of as many without a pause, by the host's clock.")
        how = "allocated at the peak beyond the inputs"
        if chosen.precision == "fast":
            notes.append("Products in float32 may use TF32 (torch.set_float32_matmul_precision('high')).")
    else:
        how = "growth of resident memory in a fresh process, inputs excluded"
    notes.append(f"peak: {how}, gradients included; 1 MB = 10^6 bytes.")
    limit = REFERENCE_UP_TO[chosen.device.partition(":")[0]]
    notes.append(
        "gradient error: |g - g64| / |g64| over both views at unit projections, g64 from the dense formula in float64 "
        f"(k <= {limit})."
    )
    notes.append(
        "of products: operations / time / the device's rate of matrix products, measured now: "
        f"{_rate(rate.tflops)} ({rate.of}). The formula needs 4 n^2 d operations for all pairs of n rows: n^2 d "
        "forward (the similarities, half of them by symmetry), 3 n^2 d backward (the same again, and the product of their "
        f"weights with the rows). {'Here n = 2k.' if chosen.what == 'ntxent' else 'Here n = k, for each of two views.'}"
    )
    if chosen.what != "ntxent" and any(row.contestant == LIGHTLY for row in benchmark.rows):
        notes.append(f"{LIGHTLY} is another loss, on all pairs of 2k rows (n = 2k); it stands here for scale.")
    if benchmark.machine.busy:
        busy = f"{benchmark.machine.load:.1f} of {benchmark.machine.cores} cores"
        notes.append(f"The machine was busy when this began ({busy}): the times are too long. Measure again when it is not.")
    if benchmark.missing:
        notes.append(benchmark.missing)
    return notes


def _on_cuda(benchmark: Benchmark) -> bool:
    return benchmark.settings.device.startswith("cuda")


def number(x: float | None) -> str:
    """Three digits, and no exponent."""
    if x is None:
        return "-"
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def _rate(tflops: float) -> str:
    return f"{number(tflops)} TFLOP/s" if tflops >= 1 else f"{number(1e3 * tflops)} GFLOP/s"


def _times(row: Row, ours: float | None) -> str:
    return "-" if row.ms is None or ours is None else number(row.ms / ours)


def _error(row: Row) -> str:
    return "-" if row.gradient_error is None else f"{row.gradient_error:.1e}"


def _percent(row: Row) -> str:
    return "-" if row.fraction is None else f"{row.fraction:.1%}"
