"""The page's tables: what runs reached, and in which settings they differ. On a phone each row is a card."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from entrec.report.known import Known, whereof

COLUMNS = (
    ("verdict", "lens", "{}"),
    ("knn_top1", "kNN", "{:.1%}"),
    ("linear_top1", "linear probe", "{:.1%}"),
    ("er_bound", "ER bound (nats)", "{:.2f}"),
    ("entropy", "entropy (nats)", "{:.2f}"),
    ("reconstruction", "reconstruction (nats)", "{:.2f}"),
)


def cell(summary: Mapping[str, Any], key: str, form: str) -> str:
    """A number of a summary as a table shows it."""
    value = summary.get(key)
    return "-" if value is None else form.format(value)


def scores(runs: Sequence[Known]) -> str:
    """What each run reached, what matters most first."""
    compared = ("held_out_entropy", f"entropy, {whereof(runs)} (0 to 1)", "{:.2f}")  # at whatever dimensions
    columns = (*COLUMNS[:3], compared, *COLUMNS[3:])
    rows = [
        (
            escape(run.name) + ("" if run.ended else f"<small>{escape(run.so_far)}</small>"),
            [cell(run.numbers, key, form) for key, _, form in columns],
        )
        for run in runs
    ]
    return _table([label for _, label, _ in columns], rows)


def differences(runs: Sequence[Known]) -> str:
    """The settings in which runs differ."""
    keys = list(dict.fromkeys(key for run in runs for key in run.config))
    differ = [key for key in keys if len({repr(run.config.get(key)) for run in runs}) > 1]
    if not differ:
        return ""
    rows = [(escape(key), [str(run.config.get(key)) for run in runs]) for key in differ]
    return f"<h2>Differences</h2>{_table([run.name for run in runs], rows)}"


def _table(labels: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A table; each cell carries its column's label, which stands before it where there is no room for columns."""
    head = "".join(f"<th scope='col'>{escape(label)}</th>" for label in labels)
    body = "".join(
        f"<tr><th scope='row'>{name}</th>"
        + "".join(
            f"<td data-label='{escape(label, quote=True)}'>{escape(text)}</td>"
            for label, text in zip(labels, cells, strict=True)
        )
        + "</tr>"
        for name, cells in rows
    )
    return f"<div class='wide'><table class='cards'><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
