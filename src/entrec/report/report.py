"""`entrec report`: the page of some runs, with what their encoders make of held-out images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from entrec.evaluation.features import extract
from entrec.files import refuse_existing, require_writable
from entrec.report.gallery import IMAGES, Gallery
from entrec.report.known import UNREADABLE
from entrec.report.names import names_of
from entrec.report.page import write_report
from entrec.saying import show_line
from entrec.training.encoders import load_encoder
from entrec.training.images import single, some
from entrec.training.run import Run, open_run
from entrec.training.runs import ready


def report(
    runs: Sequence[Run | Path | str],
    out: Path | str = "report.html",
    *,
    images: bool = True,
    data: Any = None,
    device: str = "auto",
    overwrite: bool = False,
    console: Console | None = None,
) -> Path:
    """Write one self-contained page about runs: curves, verdicts, a map of held-out images, neighbours, settings, scores.

    Args:
        runs: or their folders; one that has not ended yet is shown as far as it is.
        out: the HTML file.
        images: whether to look at held-out images, or at training images where there is no test split: needs the data, and a
            checkpoint of each run. The page says which runs' images are left out for want of these.
        data: the images, if not the run's own: as for `entrec.train`.
        device: auto, cpu or cuda.
        overwrite: replace the file.
        console: where to say what is left out; None for silence.

    Raises:
        FileNotFoundError: a folder is no run, or has no metrics.csv.
        ValueError: a file of a run is damaged; or the device, or the data that were given, cannot be used.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    out = Path(out)
    if not overwrite:
        refuse_existing(out)
    require_writable(out)
    opened = [_written(open_run(run)) for run in runs]
    looked = _looked_at(opened, data, device) if images else []
    galleries = [found for found in looked if isinstance(found, Gallery)]
    left_out = [found for found in looked if isinstance(found, str)]
    if console is not None:
        for text in left_out:
            show_line(text, console)
    return write_report(opened, out, words=left_out, galleries=galleries)


def _written(run: Run) -> Run:
    """A run of which there is something to show."""
    if not (run.folder / "metrics.csv").is_file():
        raise FileNotFoundError(f"{run.folder} has no metrics.csv: the run has not begun, or parts of it were deleted")
    return run


def _looked_at(runs: Sequence[Run], data: Any, device: str) -> list[Gallery | str]:
    """The images of each run, or why there are none."""
    if device not in ("auto", "cpu") and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise ValueError(f"device (--device) must be auto, cpu or, where PyTorch can use a GPU, cuda; got {device!r}")
    return [_gallery_or_why(name, run, data, device) for name, run in zip(names_of(runs), runs, strict=True)]


def _gallery_or_why(name: str, run: Run, data: Any, device: str) -> Gallery | str:
    why = f"The images of {name} are left out: "
    if not run.kept.is_file():
        return f"{why}{run.folder} has no checkpoint, and so no encoder to look at them with."
    try:
        load_encoder(run)
    except UNREADABLE as error:
        return f"{why}{run.kept} cannot be read ({_first_line(error)})."
    try:
        found = _gallery(name, run, data, device)
    except UNREADABLE as error:
        if data is not None:  # that the images given are of no use is no matter of one run
            raise
        return f"{why}{_first_line(error)}."
    return found if bool(found.features.isfinite().all()) else f"{why}its encoder's features are no numbers."


def _gallery(name: str, run: Run, data: Any, device: str) -> Gallery:
    encoder, source, where = ready(run, data, "student", device, None, None, strict=False)
    chosen = some(single(source.train if source.test is None else source.test), IMAGES)
    found = extract(encoder.backbone.module, chosen, encoder.prepare, device=where)
    assert found.places is not None  # of what `extract` returns
    pictures = [chosen[int(place)][0] for place in found.places]
    classes = source.classes if bool((found.labels >= 0).all()) else ()
    labels, held_out = torch.as_tensor(found.labels).cpu(), source.test is not None
    return Gallery(name, found.values.cpu().float(), pictures, labels, classes, held_out)


def _first_line(error: Exception) -> str:
    text = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".")
