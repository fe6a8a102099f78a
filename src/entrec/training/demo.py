"""`make demo`: what ER changes, seen in one table within minutes on two cores."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from entrec.files import refuse_existing
from entrec.report.page import COLUMNS, cell, name_of, write_report
from entrec.saying import show_line
from entrec.training.run import Run
from entrec.training.train import train

# The paper's fragile corner (Table 1: small batch, EMA 0.8), in small: batch 64 on rendered shapes, a tiny encoder.
EMA, BATCH_SIZE, EPOCHS = 0.8, 64, 7


def run(out: Path, console: Console, epochs: int = EPOCHS, overwrite: bool = False) -> Path:
    """Train BYOL and BYOL+ER side by side and write the report; returns its path."""
    report = out / "report.html"
    if not overwrite:
        refuse_existing(report)
    console.print(
        f"BYOL and BYOL + ER on rendered shapes: batch {BATCH_SIZE}, EMA {EMA}, {epochs} epochs each. No labels are used to "
        "train; they only score.\n",
        highlight=False,
    )
    runs = []
    for er in (False, True):
        console.print(f"[bold]{'BYOL + ER' if er else 'BYOL'}[/bold]", highlight=False)
        folder = out / ("byol-er" if er else "byol")
        runs.append(
            train(
                "byol",
                er=er,
                data="shapes",
                ema=EMA,
                batch_size=BATCH_SIZE,
                epochs=epochs,
                out=folder,
                overwrite=overwrite,
                device="cpu",
                console=console,
            )
        )
        console.print()
    words = what_er_changes(*runs)
    console.print(_table(runs))
    console.print(f"\n{words}", highlight=False)
    write_report(runs, report, "What entropy + reconstruction changes", [words])
    show_line(f"\nThe report, with curves: {report}", console)
    return report


def what_er_changes(plain: Run, er: Run) -> str:
    """The comparison in words, from the two summaries alone."""
    a, b = plain.summary, er.summary
    gained = b["entropy"] - a["entropy"]
    points = 100 * (b["linear_top1"] - a["linear_top1"])
    return (
        f"With ER in place of its loss, BYOL's projections have {abs(gained):.2f} nats {'more' if gained > 0 else 'less'} "
        "entropy, "
        f"the bound on what one view tells of the other {'rises' if b['er_bound'] > a['er_bound'] else 'falls'} from "
        f"{a['er_bound']:.2f} to {b['er_bound']:.2f} nats, and a linear probe is right {abs(points):.1f} points "
        f"{'more' if points > 0 else 'less'} often ({a['linear_top1']:.1%} -> {b['linear_top1']:.1%})."
    )


def _table(runs: list[Run]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))  # in 80 columns
    table.add_column("")
    for _, label, _ in COLUMNS:
        table.add_column(label.replace(" (", "\n("), justify="right")
    for one in runs:
        summary = one.summary
        table.add_row(name_of(one), *(cell(summary, key, form) for key, _, form in COLUMNS))
    return table
