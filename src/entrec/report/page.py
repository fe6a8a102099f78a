"""One HTML page about one or more runs: what they reached, how they got there, and by which protocol it was measured."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from entrec.report.curves import curves
from entrec.training.run import Run, write_text

COLUMNS = (
    ("entropy", "entropy (nats)", "{:.2f}"),
    ("reconstruction", "reconstruction (nats)", "{:.2f}"),
    ("er_bound", "ER bound (nats)", "{:.2f}"),
    ("knn_top1", "kNN", "{:.1%}"),
    ("linear_top1", "linear probe", "{:.1%}"),
)

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .9rem; text-align: right; }
th { border-bottom: 2px solid #444; font-weight: 600; } td { border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } svg { width: 100%; height: auto; }
.small { color: #555; font-size: .9rem; }
"""


def write_report(runs: Sequence[Run], path: Path, title: str = "Runs side by side", words: Sequence[str] = ()) -> Path:
    """Write the page.

    Args:
        runs: that have ended.
        path: of the HTML file.
        title: of the page.
        words: paragraphs between the title and the table.
    """
    named = [(name_of(run), run) for run in runs]
    summaries = [run.summary for run in runs]
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in words)
    protocols = dict.fromkeys(text for summary in summaries for text in summary["protocols"])
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>{paragraphs}{_table(named, summaries)}{curves(named)}"
        "<p class='small'>Entropy and reconstruction are means over the last epoch's logged batches in the table, over each "
        "epoch's in the curves. Their sum is the bound on the mutual information of two views' projections; with an "
        "estimated entropy, compare it at equal batch and kernel.</p>"
        f"<h2>How it was measured</h2><ul>{''.join(f'<li>{escape(text)}</li>' for text in protocols)}</ul>"
        f"<h2>Settings</h2>{''.join(_settings(name, run) for name, run in named)}</html>\n"
    )
    write_text(path, page)
    return path


def name_of(run: Run) -> str:
    """The method as the paper would write it."""
    config = run.config
    proper = {"simclr": "SimCLR", "moco": "MoCo", "deepcluster": "DeepCluster", "swav": "SwAV"}
    name = proper.get(config["method"], config["method"].upper())
    return f"{name} + ER" if config["er"] else name


def cell(summary: Mapping[str, Any], key: str, form: str) -> str:
    """A number of a summary as a table shows it."""
    value = summary.get(key)
    return "-" if value is None else form.format(value)


def _table(named: Sequence[tuple[str, Run]], summaries: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(label)}</th>" for _, label, _ in COLUMNS)
    rows = [
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell(summary, key, form)}</td>' for key, _, form in COLUMNS)}</tr>"
        for (name, _), summary in zip(named, summaries, strict=True)
    ]
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _settings(name: str, run: Run) -> str:
    values = ", ".join(f"{key} {value}" for key, value in run.config.items() if value is not None and key != "method")
    return f"<p class='small'><b>{escape(name)}</b>: {escape(values)}</p>"
