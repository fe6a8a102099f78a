"""`entrec eval`, `entrec embed` and `entrec export`: what one does with a trained encoder."""

from pathlib import Path
from typing import Annotated, Any

import typer

from entrec.cli.edge import console, failing_clearly

_Trained = Annotated[Path, typer.Argument(help="A run's folder, or a checkpoint file (.ckpt).", metavar="RUN")]
_Data = Annotated[
    str | None, typer.Option(help="A data set's name, a folder or an archive of images. By default the run's own.")
]
_Who = Annotated[str, typer.Option(help="Whose encoder: student or teacher.")]
_Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto: a GPU if there is one.")]
_Workers = Annotated[int, typer.Option(min=0, help="Processes that decode images.")]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]


def evaluate(run: _Trained, data: _Data = None, who: _Who = "student", device: _Device = "auto", workers: _Workers = 0) -> None:
    """Score a frozen encoder by kNN and by a linear probe, and say by which protocol.

    The data need labels and a test split: the built-in data sets have both, a folder has them as train/CLASS/... and
    test/CLASS/...
    """
    with failing_clearly():
        import entrec

        whose: Any = who
        found = entrec.evaluate(run, data=data, who=whose, device=device, workers=workers)
    for score in found.scores:
        error = "" if score.standard_error is None else f" +- {score.standard_error:.1%}"
        console.print(f"[bold]{score.name} {score.accuracy:.1%}{error}[/bold]\n  {score.protocol}", highlight=False)


def embed(
    run: _Trained,
    out: Annotated[Path, typer.Option(help="The file to write, .npy or .safetensors.")],
    data: _Data = None,
    split: Annotated[str, typer.Option(help="Of the data: train or test.")] = "train",
    who: _Who = "student",
    device: _Device = "auto",
    workers: _Workers = 0,
    overwrite: _Overwrite = False,
) -> None:
    """Write the encoder's features of every image, in the data's order."""
    with failing_clearly():
        import entrec

        words: Any = {"split": split, "who": who}
        paths = entrec.embed(run, out, data=data, device=device, workers=workers, overwrite=overwrite, **words)
    console.print(f"Written to {' and '.join(str(path) for path in paths)}", highlight=False)


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
    console.print(f"The {found.who}'s encoder is in {found.path}. To load it:\n", highlight=False)
    for line in found.lines:
        console.print(f"    {line}", highlight=False, markup=False, soft_wrap=True)
    if found.note:
        console.print(f"\n{found.note}", highlight=False)
