"""What one does with a run when it has ended: evaluate, embed, export."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from entrec import checks
from entrec.data import Data, Source, open_source
from entrec.evaluation.export import Exported, export_encoder
from entrec.evaluation.features import extract, require_numbers
from entrec.evaluation.scores import Evaluation, score
from entrec.evaluation.writing import check_writable, in_words, write_features
from entrec.saying import show_line
from entrec.training.encoders import Encoder, Who, load_encoder
from entrec.training.images import single
from entrec.training.run import Run, open_run

Split = Literal["train", "test"]


def evaluate(
    run: Run | Path | str,
    *,
    data: Data | None = None,
    who: Who = "student",
    device: str = "auto",
    workers: int = 0,
    labels: bool | None = None,
    root: str | None = None,
    strict: bool = False,
) -> Evaluation:
    """KNN, as the run has it, and linear probe of its encoder, frozen and in eval mode, on both splits of labelled data.

    Images without a label do not count, nor do those that cannot be read: the protocols say how many had none, and `skipped`
    which could not be read.

    Args:
        run: a run, its folder, or a checkpoint file.
        data: as for `entrec.train`; the run's own if not given.
        who: the student's encoder or the teacher's.
        device: auto, cpu or cuda.
        workers: processes that decode images.
        labels: whether folders are classes; None: as in the run for its own data, and what is found for others.
        root: where a named data set lies; None: as in the run for its own data.
        strict: stop at an image that cannot be read.

    Raises:
        ValueError: the data have no labels, or no test split, or features that are NaN or infinite.
    """
    encoder, source, where = ready(run, data, who, device, labels, root, strict)
    if not source.classes or source.test is None:
        lacking = "labels" if not source.classes else "test split"
        raise ValueError(f"{source.name} has no {lacking}: evaluation needs labels and a test split {_labelled(data)}")
    plain = encoder.prepare
    found = score(
        encoder.backbone.module, single(source.train), single(source.test), plain, len(source.classes),
        few=source.name == "digits", device=where, workers=workers,
        **{key: encoder.config[key] for key in ("knn_k", "knn_temperature") if key in encoder.config},
    )  # fmt: skip
    return found._replace(encoder=f"the {who}'s encoder, frozen; {plain.rule}")


def embed(
    run: Run | Path | str,
    out: Path | str,
    *,
    data: Data | None = None,
    split: Split = "train",
    who: Who = "student",
    device: str = "auto",
    workers: int = 0,
    labels: bool | None = None,
    root: str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
) -> tuple[Path, ...]:
    """Write the encoder's features of every image, in the data's order, to a .npy or .safetensors file.

    Args:
        run: a run, its folder, or a checkpoint file.
        out: the file; its suffix decides the format (see `entrec.evaluation.write_features`).
        data: as for `entrec.train`; the run's own if not given.
        split: of the data.
        who: the student's encoder or the teacher's.
        device: auto, cpu or cuda.
        workers: processes that decode images.
        labels: whether folders are classes; None: as in the run for its own data, and what is found for others.
        root: where a named data set lies; None: as in the run for its own data.
        strict: stop at an image that cannot be read.
        overwrite: replace the file.
        console: where to say which images could not be read; None for silence.

    Returns:
        The files: the features and, for .npy, beside them the labels, where there are any, and the path (or place), label and
        class of each row as NAME.csv.

    Raises:
        ValueError: features are NaN or infinite; nothing is written then.
    """
    checks.choice("split", split, Split)
    check_writable(out, overwrite=overwrite)
    encoder, source, where = ready(run, data, who, device, labels, root, strict)
    images = source.train if split == "train" else source.test
    if images is None:
        raise ValueError(f"{source.name} has no {split} split")
    features = extract(encoder.backbone.module, single(images), encoder.prepare, device=where, workers=workers)
    require_numbers(features, encoder.backbone.module)
    if features.skipped and console is not None:
        show_line(in_words(features.skipped), console)
    return write_features(features, out, paths=_paths(images), classes=source.classes, overwrite=overwrite)


def export(run: Run | Path | str, out: Path | str, *, who: Who = "student", overwrite: bool = False) -> Exported:
    """Write the encoder as a plain state dict that timm or torchvision load with strict=True.

    Args:
        run: a run, its folder, or a checkpoint file.
        out: a .safetensors or .pth file.
        who: the student's encoder or the teacher's.
        overwrite: replace the file.

    Returns:
        The file, whose weights they are, and the Python lines that load it and that prepare an image for it; features and
        images were compared before it was written.
    """
    encoder = load_encoder(run, who)
    backbone, size = encoder.backbone, encoder.config["image_size"]
    images = torch.randn(4, encoder.facts["channels"], size, size, generator=torch.Generator().manual_seed(0))
    return export_encoder(
        backbone.module, encoder.config["backbone"], backbone.origin, Path(out),
        channels=encoder.facts["channels"], image_size=size, mean=encoder.facts["mean"], std=encoder.facts["std"],
        small_stem=backbone.small_stem, lines=backbone.lines, who=who, reference_images=images, overwrite=overwrite,
    )  # fmt: skip


def write_encoder(run: Run, overwrite: bool) -> None:
    """The run's own encoder.safetensors, the student's."""
    export(run, run.folder / "encoder.safetensors", overwrite=overwrite)


def ready(
    run: Run | Path | str,
    data: Data | None,
    who: Who,
    device: str,
    labels: bool | None,
    root: str | None,
    strict: bool,
) -> tuple[Encoder, Source, torch.device]:
    """The encoder, the data, and the device that the encoder is on; what the run says of data holds for its own alone."""
    where = _device(device)
    encoder = load_encoder(run, who)
    config = encoder.config
    if data is None:
        if config["data"].startswith("<"):
            raise ValueError(f"the run was trained on a Python data set {config['data']}: give it as data=...")
        data = str(config["data"])
        labels = config["labels"] if labels is None else labels
        root = config.get("root") if root is None else root
    source = open_source(
        data,
        image_size=config["image_size"],
        root=root,
        labels=labels,
        strict=strict,
        seed=config["seed"],
        channels=encoder.facts["channels"],
    )
    encoder.backbone.module.to(where)
    return encoder, source, where


def _paths(dataset: Any) -> Sequence[str] | None:
    """Where each image of a data set lies, if it says so."""
    paths = getattr(dataset, "paths", None)
    return paths if isinstance(paths, Sequence) and len(paths) == len(dataset) else None


def _labelled(data: Data | None) -> str:
    """How data of this kind have labels and a test split."""
    if data is None:
        return "(folders train/CLASS/... and test/CLASS/...); other data that have them can be given, by --data or data="
    if isinstance(data, str | Path):
        return "(folders train/CLASS/... and test/CLASS/...)"
    return "(a pair data=(train, test) of labelled data sets, or an entrec.data.Source)"


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("device='cuda' needs a GPU that PyTorch can use, and there is none; device='cpu' (--device cpu) works")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device (--device) must be auto, cpu or cuda, got {device!r}") from error


__all__ = ["Data", "Run", "Split", "embed", "evaluate", "export", "open_run", "write_encoder"]
