"""`entrec report`: the page of some runs, with what their encoders make of held-out images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from entrec.evaluation.features import extract
from entrec.files import refuse_existing
from entrec.report.gallery import IMAGES, Gallery
from entrec.report.page import names_of, write_report
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
) -> Path:
    """Write one self-contained page about runs: curves, verdicts, a map of held-out images, neighbours, settings, scores.

    Args:
        runs: or their folders; one that has not ended yet is shown as far as it is.
        out: the HTML file.
        images: whether to look at held-out images: needs the data, and a checkpoint of each run.
        data: the images, if not the run's own: as for `entrec.train`.
        device: auto, cpu or cuda.
        overwrite: replace the file.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    out = Path(out)
    if not overwrite:
        refuse_existing(out)
    opened = [_written(open_run(run)) for run in runs]
    galleries = (
        [_gallery(name, run, data, device) for name, run in zip(names_of(opened), opened, strict=True)] if images else []
    )
    return write_report(opened, out, galleries=galleries)


def _written(run: Run) -> Run:
    """A run of which there is something to show."""
    if not (run.folder / "metrics.csv").is_file():
        raise FileNotFoundError(f"{run.folder} has no metrics.csv: the run has not begun, or parts of it were deleted")
    return run


def _gallery(name: str, run: Run, data: Any, device: str) -> Gallery:
    if not run.kept.is_file():
        raise FileNotFoundError(
            f"{run.folder} has no checkpoint, and so no encoder to look at images with: images=False (--no-images) helps"
        )
    encoder, source, where = ready(run, data, "student", device, None, None, strict=False)
    chosen = some(single(source.train if source.test is None else source.test), IMAGES)
    found = extract(encoder.backbone.module, chosen, encoder.prepare, device=where)
    assert found.places is not None  # of what `extract` returns
    pictures = [chosen[int(place)][0] for place in found.places]
    classes = source.classes if bool((found.labels >= 0).all()) else ()
    return Gallery(name, found.values.cpu().float(), pictures, torch.as_tensor(found.labels).cpu(), classes)
