"""`entrec eval`, `entrec embed` and `entrec export`: what one does with a trained encoder."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from entrec.cli.edge import console, failing_clearly, say

_Trained = Annotated[Path, typer.Argument(help="A run's folder, or a checkpoint file (.ckpt).", metavar="RUN")]
_Data = Annotated[
    str | None, typer.Option(help="A data set's name, a folder or an archive of images. By default the run's own.")
]
_Who = Annotated[str, typer.Option(help="Whose encoder: student or teacher.")]
_Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")]
_Workers = Annotated[int, typer.Option(min=0, help="Processes that decode images.")]
_Labels = Annotated[
    bool | None, typer.Option("--labels/--no-labels", help="Take sub-folders for classes, or not. [default: look]")
]
_Root = Annotated[str | None, typer.Option(help="Where a named data set lies. [default: ~/.cache/entrec/NAME]")]
_Strict = Annotated[bool, typer.Option("--strict", help="Stop at an unreadable image instead of skipping it.")]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
_WORKERS = min(16, os.cpu_count() or 1)  # as for training


def evaluate(
    run: _Trained,
    data: _Data = None,
    who: _Who = "student",
    device: _Device = "auto",
    workers: _Workers = _WORKERS,
    labels: _Labels = None,
    root: _Root = None,
    strict: _Strict = False,
) -> None:
    """Score a frozen encoder by kNN and by a linear probe, and say by which protocol.

    The data need labels and a test split: the built-in data sets have both, a folder has them as train/CLASS/... and
    test/CLASS/...
    """
    with failing_clearly():
        import entrec
        from entrec.evaluation.writing import in_words

        words: Any = {"who": who, "labels": labels, "root": root, "strict": strict}
        found = entrec.evaluate(run, data=data, device=device, workers=workers, **words)
    for score in found.scores:
        error = "" if score.standard_error is None else f" +- {score.standard_error:.1%}"
        say(f"{score.name} {score.accuracy:.1%}{error}", style="bold")
        say(f"  {score.protocol}")
    say(f"Features of {found.encoder}")
    if found.skipped:
        say(in_words(found.skipped))


def embed(
    run: _Trained,
    out: Annotated[Path, typer.Option(help="The file to write, .npy or .safetensors.")],
    data: _Data = None,
    split: Annotated[str, typer.Option(help="Of the data: train or test.")] = "train",
    who: _Who = "student",
    device: _Device = "auto",
    workers: _Workers = _WORKERS,
    labels: _Labels = None,
    root: _Root = None,
    strict: _Strict = False,
    overwrite: _Overwrite = False,
) -> None:
    """Write the encoder's features of every image, in the data's order.

    Beside NAME.npy there will be NAME.csv, with the path, label and class of each row; NAME.safetensors holds that itself.
    """
    with failing_clearly():
        import entrec

        words: Any = {"split": split, "who": who, "labels": labels, "root": root, "strict": strict, "console": console}
        paths = entrec.embed(run, out, data=data, device=device, workers=workers, overwrite=overwrite, **words)
    say(f"Written to {' and '.join(str(path) for path in paths)}")


def export(
    run: _Trained,
    out: Annotated[Path, typer.Option(help="The file to write, .safetensors or .pth.")],
    who: _Who = "student",
    overwrite: _Overwrite = False,
) -> None:
    """Write the encoder as a plain state dict that timm or torchvision load with strict=True.

    The features of the rebuilt model are compared with the encoder's before the file is there.
    """
    with failing_clearly():
        import entrec

        whose: Any = who
        found = entrec.export(run, out, who=whose, overwrite=overwrite)
    say(f"The {found.who}'s encoder is in {found.path}. To load it:\n")
    for line in found.lines:
        say(f"    {line}")
    say("\nTo prepare an image for it, a PIL image of any mode or a uint8 tensor (C, H, W) with as many channels as it has:\n")
    for line in found.transform:
        say(f"    {line}")
    if found.note:
        say(f"\n{found.note}")
