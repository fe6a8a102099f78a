"""One HTML page about one or more runs: what they reached, how they got there, and by which protocol it was measured."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from entrec.report.curves import STYLES, curves
from entrec.report.gallery import Gallery, shown
from entrec.training.run import Run, write_text

COLUMNS = (
    ("entropy", "entropy (nats)", "{:.2f}"),
    ("reconstruction", "reconstruction (nats)", "{:.2f}"),
    ("er_bound", "ER bound (nats)", "{:.2f}"),
    ("knn_top1", "kNN", "{:.1%}"),
    ("linear_top1", "linear probe", "{:.1%}"),
    ("verdict", "lens", "{}"),
)

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .9rem; text-align: right; }
th { border-bottom: 2px solid #444; font-weight: 600; } td { border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } svg { width: 100%; height: auto; }
.small { color: #555; font-size: .9rem; } .wide { overflow-x: auto; }
.runs label { margin-right: 1.2rem; } .runs i { display: inline-block; width: 1.6rem; margin: 0 .3rem; vertical-align: middle;
border-top: 3px solid; } .strip { display: flex; gap: .25rem; margin: .25rem 0; overflow-x: auto; }
.strip img { width: 64px; height: 64px; image-rendering: pixelated; } .strip .query { margin-right: .8rem; outline: 2px solid; }
"""
_LINES = {"-": "solid", "--": "dashed", "-.": "dashed", ":": "dotted"}


def write_report(
    runs: Sequence[Run],
    path: Path,
    title: str = "Runs side by side",
    words: Sequence[str] = (),
    galleries: Sequence[Gallery] = (),
) -> Path:
    """Write the page.

    Args:
        runs: that have ended, or go on: of these, what they have written so far.
        path: of the HTML file.
        title: of the page.
        words: paragraphs between the title and the table.
        galleries: images and their features, for maps and neighbours.
    """
    named = list(zip(names_of(runs), runs, strict=True))
    summaries = [_summary(run) for run in runs]
    unended = [name for (name, _), summary in zip(named, summaries, strict=True) if not summary]
    words = [*words, *(f"{name} has not ended: its curves end where it is." for name in unended)]
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in words)
    protocols = dict.fromkeys(text for summary in summaries for text in summary.get("protocols", ()))
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}{_toggles(len(runs))}</style>"
        f"<h1>{escape(title)}</h1>{paragraphs}<div class='wide'>{_table(named, summaries)}</div>"
        f"{_verdicts(named, summaries)}{_curves(named)}"
        "<p class='small'>Entropy and reconstruction are means over the last epoch's logged batches in the table, over each "
        "epoch's in the curves. Their sum is the bound on the mutual information of two views' projections; with an "
        "estimated entropy, compare it at equal batch and kernel.</p>"
        f"{shown(galleries) if galleries else ''}"
        f"<h2>How it was measured</h2><ul>{''.join(f'<li>{escape(text)}</li>' for text in protocols)}</ul>"
        f"{_differences(named)}<h2>Settings</h2>{''.join(_settings(name, run) for name, run in named)}</html>\n"
    )
    write_text(path, page)
    return path


def _summary(run: Run) -> Mapping[str, Any]:
    """What came out of a run; nothing yet where it goes on."""
    return run.summary if (run.folder / "summary.json").is_file() else {}


def names_of(runs: Sequence[Run]) -> list[str]:
    """The methods' names, with the folder's where two are the same."""
    names = [name_of(run) for run in runs]
    return [f"{name} ({run.folder.name})" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)]


def _toggles(count: int) -> str:
    """A box that is not ticked hides its run's curves: no script is needed."""
    return "".join(f"#show{i}:not(:checked) ~ .curves [id^='run{i}-'] {{ display: none; }}" for i in range(count))


def _curves(named: Sequence[tuple[str, Run]]) -> str:
    boxes = []
    for number, (name, _) in enumerate(named):
        colour, line = STYLES[number % len(STYLES)]
        swatch = f"<i style='border-color: {colour}; border-top-style: {_LINES[line]}'></i>"
        box = f"<input type='checkbox' id='show{number}' checked>"
        boxes.append(f"{box}<label for='show{number}'>{swatch}{escape(name)}</label>")
    return f"<h2>Over training</h2><div class='runs'>{''.join(boxes)}<div class='curves'>{curves(named)}</div></div>"


def _verdicts(named: Sequence[tuple[str, Run]], summaries: Sequence[Mapping[str, Any]]) -> str:
    """What the lens said of each run, as it changed."""
    said = [(name, in_turns(summary.get("verdicts", ()))) for (name, _), summary in zip(named, summaries, strict=True)]
    lines = "".join(f"<li><b>{escape(name)}</b>: {escape(text)}</li>" for name, text in said if text)
    return f"<h2>What the lens saw</h2><ul>{lines}</ul>" if lines else ""


def in_turns(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Verdicts in a row as words: each once, with the epochs after which it was seen.

    >>> in_turns([{"epochs": epochs, "verdict": "collapsed" if epochs < 2 else "healthy"} for epochs in (1, 2, 3)])
    'collapsed after epoch 1, healthy after epochs 2 to 3'
    """
    turns: list[tuple[str, list[int]]] = []
    for one in verdicts:
        if not turns or turns[-1][0] != one["verdict"]:
            turns.append((one["verdict"], []))
        turns[-1][1].append(one["epochs"])
    when = (f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}" for _, epochs in turns)
    return ", ".join(f"{name} after {text}" for (name, _), text in zip(turns, when, strict=True))


def _differences(named: Sequence[tuple[str, Run]]) -> str:
    """The settings in which runs differ."""
    configs = [run.config for _, run in named]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    differ = [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]
    if not differ:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name, _ in named)
    rows = "".join(
        f"<tr><td>{escape(key)}</td>{''.join(f'<td>{escape(str(config.get(key)))}</td>' for config in configs)}</tr>"
        for key in differ
    )
    return f"<h2>Differences</h2><div class='wide'><table><tr><th></th>{head}</tr>{rows}</table></div>"


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
