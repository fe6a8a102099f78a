"""`entrec lens`: what embeddings from anywhere are."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from entrec.cli.edge import console, fail, failing_clearly, require, require_free_file, say

_MAX_ROWS = 10_000
_COLOURS = {"healthy": "green", "saturated": "yellow", "weak": "yellow"}


def lens(
    z1: Annotated[
        Path, typer.Argument(help="Embeddings, a row for each datum: .npy, .pt, .safetensors or .csv.", metavar="Z1")
    ],
    z2: Annotated[
        Path | None,
        typer.Argument(help="Those of another view of the same data, row by row.", metavar="[Z2]", show_default=False),
    ] = None,
    kappa: Annotated[float, typer.Option(help="Concentration of the kernel: the inverse of a contrastive temperature.")] = 10.0,
    codes: Annotated[
        bool, typer.Option("--codes", help="Rows are distributions over codes (prototypes, clusters), or logits of them.")
    ] = False,
    method: Annotated[str, typer.Option(help="That made them (byol, dino, ...): its remedies are named too.")] = "",
    er: Annotated[bool, typer.Option("--er", help="They were trained with ER, which is then not named as a remedy.")] = False,
    max_rows: Annotated[int, typer.Option(min=2, help="Look at no more rows than these, chosen at random.")] = _MAX_ROWS,
    data: Annotated[
        str | None, typer.Option(help="Images to look at with an encoder: Z1 is then its weights.", show_default=False)
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The encoder, any of timm's or torchvision's by name.", show_default=False)
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Side of its views. [default: what suits the data]")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the verdict, the numbers and two pictures.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write everything as JSON.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace these files.")] = False,
) -> None:
    """Look at embeddings from anywhere, and be told in words whether they are healthy.

    Without labels: how much of the sphere they fill, in how many directions, and, given two views, how much one tells of the
    other. `entrec lens z1.npy z2.npy` is all it takes. Instead of files of embeddings it takes a run's folder, or the weights
    of any encoder: `entrec lens weights.pt --data my/images --backbone resnet50`.
    """
    for path, option in ((html, "--html"), (out, "--out")):
        if path is not None:
            require_free_file(path, overwrite, option)
    written, given = ({path.resolve() for path in paths if path is not None} for paths in ((html, out), (z1, z2)))
    if len(written) < sum(path is not None for path in (html, out)) or written & given:
        fail("--html and --out must be two files, and neither may be that of the embeddings")
    if html is not None:
        require("matplotlib", extra="paper")
    encoder = z1.is_dir() or z1.suffix == ".ckpt" or data is not None or backbone is not None
    with failing_clearly():
        _require_fitting(encoder, z1, z2, codes, max_rows, image_size, backbone, method)
        if encoder:
            from entrec.training.lens import examine_encoder

            found = examine_encoder(z1, data=data, backbone=backbone, image_size=image_size, kappa=kappa, er=er)
        else:
            from entrec.lens.examine import examine

            found = examine(z1, z2, kappa=kappa, codes=codes, method=method, max_rows=max_rows, er=er)
        _write(found, f"{z1.name} and {z2.name}" if z2 is not None else z1.name, html, out)
    _show(found)
    for path in (html, out):
        if path is not None:
            say(f"Written to {path}")


def _require_fitting(
    encoder: bool,
    z1: Path,
    z2: Path | None,
    codes: bool,
    max_rows: int,
    image_size: int | None,
    backbone: str | None,
    method: str,
) -> None:
    """Refuse options that would be passed over in silence."""
    from entrec.checks import choice
    from entrec.methods import METHODS

    if method:
        choice("method", method.lower(), Literal[tuple(METHODS)])
    if not encoder:
        if image_size is not None:
            raise ValueError("--image-size is for looking at images with an encoder: it needs --data and --backbone")
        return
    for name, given in (("Z2", z2 is not None), ("--codes", codes), ("--max-rows", max_rows != _MAX_ROWS)):
        if given:
            raise ValueError(f"{name} is for embeddings; with an encoder both views are made here")
    if backbone is None and z1.is_file() and z1.suffix != ".ckpt":
        raise ValueError(f"--backbone must say which encoder {z1} holds the weights of, for instance --backbone resnet50")


def _write(found: Any, title: str, html: Path | None, out: Path | None) -> None:
    from entrec.files import appearing

    if html is not None:
        from entrec.lens.page import page

        with appearing(html) as unfinished:
            unfinished.write_text(page(found, title), encoding="utf-8")
    if out is not None:
        with appearing(out) as unfinished:
            unfinished.write_text(json.dumps(_as_json(found), indent=1, allow_nan=False), encoding="utf-8")


def _show(found: Any) -> None:
    from entrec.lens.table import lines

    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, side in (("reading", "left"), ("value", "right"), ("what it means", "left")):
        shown.add_column(name, justify=side)  # type: ignore[arg-type]
    for line in lines(found.readings):
        shown.add_row(*line)
    rows, width = found.embeddings.views[0].shape
    kernel = "" if hasattr(found.readings, "codes") else f", kernel of kappa {found.readings.kappa:g}"
    console.print(f"{rows} rows of {width} {'codes' if not kernel else 'dimensions'}{kernel}\n", highlight=False)
    console.print(shown, highlight=False)
    verdict = found.verdict
    console.print(f"\n{verdict.title}", style=f"bold {_COLOURS.get(verdict.name, 'red')}", highlight=False, markup=False)
    for text in (*verdict.because, *(f"What helps: {text}" for text in verdict.remedies), *found.notes):
        console.print(text, highlight=False, markup=False)


def _as_json(found: Any) -> dict[str, Any]:
    """What was found, without the embeddings."""
    facts = {
        "rows": found.embeddings.rows,
        "broken_rows": list(found.embeddings.broken),
        "zero_rows": list(found.embeddings.zero),
    }
    readings = _without_nan(asdict(found.readings))
    return {"verdict": asdict(found.verdict), "readings": readings, **facts, "notes": list(found.notes)}


def _without_nan(found: Any) -> Any:
    """The same with null for NaN and infinity, which JSON has no words for."""
    if isinstance(found, dict):
        return {key: _without_nan(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_without_nan(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found
