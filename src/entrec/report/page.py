"""One HTML page about one or more runs: what they reached, how they got there, and by which protocol it was measured."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from entrec.report.curves import curves, has_ceilings
from entrec.report.gallery import Gallery, shown
from entrec.report.known import Known, known
from entrec.report.names import name_of
from entrec.report.style import PAGE, line_swatch
from entrec.report.tables import COLUMNS, cell, differences, scores
from entrec.report.verdicts import verdicts
from entrec.training.run import Run, write_text

_READING = (
    "In the table, numbers in nats are means over the logged batches of the last epoch, or of the one whose encoder was kept; "
    "in the curves, over each epoch's. Held out means images that were not trained on, where there are any.{} Entropy and "
    "reconstruction add up to a bound on the mutual information of two views' projections. A bound below zero tells nothing: "
    "mutual information is never less than zero. With an estimated entropy, compare bounds at equal batch and kernel. "
    "Entropies in nats depend on the number of dimensions and on the kernel: to compare runs that differ in these, take the "
    "scale from 0 to 1."
)
_CEILINGS = (
    " Thin lines of short dashes are ceilings: ln k, which InfoNCE cannot pass, and what ER comes to where projections fill "
    "the sphere evenly and both views of each image are in one place, which an estimate from few images may pass by a little."
)


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
    page = _page(known(runs), title, words, galleries)
    write_text(path, page.encode("utf-8", "replace").decode("utf-8"))  # a file's name need not be text
    return path


def _page(runs: Sequence[Known], title: str, words: Sequence[str], galleries: Sequence[Gallery]) -> str:
    going_on = [
        f"{run.name} has not ended: its numbers are the latest, its curves end where it is." for run in runs if not run.ended
    ]
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in (*words, *going_on))
    reading = _READING.format(escape(_trained_on(runs))) + (_CEILINGS if has_ceilings(runs) else "")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{PAGE}{_toggles(len(runs))}</style>"
        f"<h1>{escape(title)}</h1>{paragraphs}{scores(runs)}{verdicts(runs)}{_curves(runs)}<p class='small'>{reading}</p>"
        f"{shown(galleries) if galleries else ''}{_protocols(runs)}{differences(runs)}"
        f"<h2>Settings</h2>{''.join(_settings(run) for run in runs)}</html>\n"
    )


def _trained_on(runs: Sequence[Known]) -> str:
    """The runs of which nothing was held out, named."""
    names = ", ".join(run.name for run in runs if run.trained_on)
    return f" Here there is no test split: the lens looked at images that were trained on ({names})." if names else ""


def _toggles(count: int) -> str:
    """A box that is not ticked hides its run's curves: no script is needed."""
    return "".join(f"#show{i}:not(:checked) ~ .curves [id^='run{i}-'] {{ display: none; }}" for i in range(count))


def _curves(runs: Sequence[Known]) -> str:
    boxes = "".join(
        f"<input type='checkbox' id='show{number}' checked>"
        f"<label for='show{number}'>{line_swatch(number)}{escape(run.name)}</label>"
        for number, run in enumerate(runs)
    )
    return f"<h2>Over training</h2><div class='runs'>{boxes}<div class='curves'>{curves(runs)}</div></div>"


def _protocols(runs: Sequence[Known]) -> str:
    """How scores were measured, each way once."""
    found = dict.fromkeys(str(text) for run in runs for text in run.numbers.get("protocols") or ())
    return f"<h2>How it was measured</h2><ul>{''.join(f'<li>{escape(text)}</li>' for text in found)}</ul>" if found else ""


def _settings(run: Known) -> str:
    values = ", ".join(f"{key} {value}" for key, value in run.config.items() if value is not None and key != "method")
    return f"<p class='small'><b>{escape(run.name)}</b>: {escape(values)}</p>"


__all__ = ["COLUMNS", "cell", "name_of", "write_report"]
