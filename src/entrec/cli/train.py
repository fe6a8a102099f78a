"""`entrec train` and `entrec demo`."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from entrec.cli.edge import console, fail, failing_clearly

_NO_SETTINGS = {
    "method": "the first word after `entrec train`", "config": "--config", "data": "--data", "out": "--out",
    "overwrite": "--overwrite", "resume": "--resume", "console": "the terminal",
}  # fmt: skip

_NAMES = "simclr, cmc, ir, moco, deepcluster, swav, byol or dino"


def train(
    method: Annotated[str, typer.Argument(help=f"One of {_NAMES}.", metavar="METHOD", show_default=False)],
    er: Annotated[bool, typer.Option("--er", help="The ER objective in place of the method's own loss.")] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Begin from a published protocol instead of our defaults: lightly, its CIFAR-10 benchmark (byol, dino, moco, "
            "simclr, swav; 200 epochs, batch 512, kNN with k = 200). Options given here, and --config, go before it."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="shapes, digits, cifar10, cifar100, stl10, imagenet, a folder of images, or a .tar of one. [default: shapes]"
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data. [default: 100]")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Images in a step, over all devices. [default: 256; under 2,048 images fewer, for eight steps an epoch]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/METHOD-er-DATA]")] = None,
    labels: Annotated[
        bool | None, typer.Option("--labels/--no-labels", help="Take sub-folders for classes, or not. [default: look]")
    ] = None,
    root: Annotated[str | None, typer.Option(help="Where a named data set lies. [default: ~/.cache/entrec/NAME]")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Any timm or torchvision model, or tiny. [default: what suits the data]")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Side of a view in pixels. [default: what suits the data]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random draw. [default: 0]")] = None,
    ema: Annotated[float | None, typer.Option(help="EMA coefficient of the teacher (byol, dino, moco).")] = None,
    no_ema: Annotated[
        bool, typer.Option("--no-ema", help="No EMA at all: the teacher is the student, without gradient.")
    ] = False,
    no_centring: Annotated[bool, typer.Option("--no-centring", help="DINO without its centre.")] = False,
    estimator: Annotated[
        str | None, typer.Option(help="ER's entropy: joe or plugin; for dino also discrete. Needs --er.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Lambda, the weight of ER's reconstruction. Needs --er. [default: 1]")
    ] = None,
    kappa: Annotated[
        float | None,
        typer.Option(help="Concentration of ER's density and kernel, in its loss and where the bound is measured."),
    ] = None,
    views: Annotated[
        int | None,
        typer.Option(help="Full-size views of each image; not for ir, which takes 1, and moco, which takes 2. [default: 2]"),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="lars, sgd, adam or adamw. [default: lars; adamw for the tiny encoder]")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate for a batch of 256, to which it is in proportion.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto: a GPU if there is one. [default: auto]")] = None,
    devices: Annotated[
        int | None, typer.Option(help="Processes, one device each (or use torchrun -m entrec). [default: 1]")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that decode images. [default: the cores, 16 at most]")] = None,
    precision: Annotated[str | None, typer.Option(help="32 or bf16. [default: bf16 on a GPU]")] = None,
    compile: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Compile views and encoders. [default: on a GPU, unless the run is short]"),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="The encoder to keep: last, or best-er, of the highest ER bound on held-out views (of training images, where "
            "there is no test split). [default: last]"
        ),
    ] = None,
    patience: Annotated[int | None, typer.Option(help="Stop when that bound has not risen for so many epochs.")] = None,
    on_collapse: Annotated[str | None, typer.Option(help="warn, or stop when the lens sees one twice. [default: warn]")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at an unreadable image instead of skipping it.")] = False,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; options given here go before it.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any other setting; a run's config.yaml lists them all. Repeat it for several.", metavar="KEY=VALUE"
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
) -> None:
    """Train an encoder, with the method's own loss or with entropy + reconstruction.

    `entrec train byol --er --data my/images` is all it takes. The run's folder gets config.yaml (every setting as it was
    used), metrics.csv, TensorBoard curves, checkpoints, encoder.safetensors and summary.json.
    """
    given: dict[str, Any] = {
        "epochs": epochs, "batch_size": batch_size, "backbone": backbone, "image_size": image_size, "seed": seed, "ema": ema,
        "estimator": estimator, "weight": weight, "kappa": kappa, "views": views, "optimizer": optimizer, "rate": rate,
        "device": device, "devices": devices, "workers": workers, "precision": precision, "labels": labels, "root": root,
        "compile": compile, "keep": keep, "patience": patience, "on_collapse": on_collapse, "preset": preset,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    if no_ema and ema is not None:
        fail(f"--ema {ema:g} and --no-ema exclude each other")
    given |= {key: True for key, on in (("er", er), ("strict", strict)) if on}
    given |= {"ema": None} if no_ema else {}
    given |= {"centring": False} if no_centring else {}
    given |= dict(map(_setting, setting or ()))
    with failing_clearly():
        from entrec.training.train import train as run

        where = {} if data is None else {"data": data}
        run(method, out=out, config=config, resume=resume, overwrite=overwrite, console=console, **where, **given)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the two runs and the report.")] = Path("runs/demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Passes of each run over the data.")] = 7,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the demo in --out.")] = False,
) -> None:
    """See what ER changes: BYOL and BYOL+ER side by side at a small batch and EMA 0.8, in three minutes on two cores."""
    with failing_clearly():
        from entrec.training.demo import run

        run(out, console, epochs, overwrite)


def _setting(text: str) -> tuple[str, Any]:
    """What --set gives."""
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key:
        fail(f"--set takes KEY=VALUE, got {text!r}")
    if key in _NO_SETTINGS:
        fail(f"--set {text}: {key} is no setting of a run; {_NO_SETTINGS[key]} says it")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        fail(f"--set {key}=... must have a value that YAML can read, got {value!r}")
