"""What one does with a run when it has ended: evaluate, embed, export."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from entrec import checks
from entrec.data import Source, open_source
from entrec.evaluation.export import Exported, export_encoder
from entrec.evaluation.features import extract
from entrec.evaluation.scores import Evaluation, score
from entrec.evaluation.writing import write_features
from entrec.training.encoders import Encoder, Who, load_encoder
from entrec.training.images import single
from entrec.training.run import Run, open_run

Data = str | Path | Dataset[Any] | Source
Split = Literal["train", "test"]


def evaluate(
    run: Run | Path | str, *, data: Data | None = None, who: Who = "student", device: str = "auto", workers: int = 0
) -> Evaluation:
    """KNN and linear probe of a run's encoder, frozen and in eval mode, on the train and test split of labelled data.

    Args:
        run: a run, its folder, or a checkpoint file.
        data: as for `entrec.train`; the run's own if not given.
        who: the student's encoder or the teacher's.
        device: auto, cpu or cuda.
        workers: processes that decode images.

    Raises:
        ValueError: the data have no labels, or no test split.
    """
    encoder, source, where = _ready(run, data, who, device)
    if not source.classes or source.test is None:
        lacking = "labels" if not source.classes else "test split"
        raise ValueError(f"{source.name} has no {lacking}: evaluation needs both (folders train/CLASS/... and test/CLASS/...)")
    return score(
        encoder.backbone.module, single(source.train), single(source.test), encoder.prepare, len(source.classes),
        few=source.name == "digits", device=where, workers=workers,
    )  # fmt: skip


def embed(
    run: Run | Path | str,
    out: Path | str,
    *,
    data: Data | None = None,
    split: Split = "train",
    who: Who = "student",
    device: str = "auto",
    workers: int = 0,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Write the encoder's features of every image, in the data's order, to a .npy or .safetensors file.

    Args:
        run: a run, its folder, or a checkpoint file.
        out: the file; its suffix decides the format.
        data: as for `entrec.train`; the run's own if not given.
        split: of the data.
        who: the student's encoder or the teacher's.
        device: auto, cpu or cuda.
        workers: processes that decode images.
        overwrite: replace the file.

    Returns:
        The files: the features and, for .npy, the labels beside them.
    """
    checks.choice("split", split, Split)
    encoder, source, where = _ready(run, data, who, device)
    images = source.train if split == "train" else source.test
    if images is None:
        raise ValueError(f"{source.name} has no {split} split")
    features = extract(encoder.backbone.module, single(images), encoder.prepare, device=where, workers=workers)
    return write_features(features, Path(out), overwrite=overwrite)


def export(run: Run | Path | str, out: Path | str, *, who: Who = "student", overwrite: bool = False) -> Exported:
    """Write the encoder as a plain state dict that timm or torchvision load with strict=True.

    Args:
        run: a run, its folder, or a checkpoint file.
        out: a .safetensors or .pth file.
        who: the student's encoder or the teacher's.
        overwrite: replace the file.

    Returns:
        The file, whose weights they are, and the Python lines that load it; features were compared before it was written.
    """
    encoder = load_encoder(run, who)
    backbone, size = encoder.backbone, encoder.config["image_size"]
    images = torch.randn(4, encoder.facts["channels"], size, size, generator=torch.Generator().manual_seed(0))
    return export_encoder(
        backbone.module, encoder.config["backbone"], backbone.origin, Path(out),
        channels=encoder.facts["channels"], image_size=size, small_stem=backbone.small_stem, lines=backbone.lines, who=who,
        reference_images=images, overwrite=overwrite,
    )  # fmt: skip


def write_encoder(run: Run, overwrite: bool) -> None:
    """The run's own encoder.safetensors, the student's."""
    export(run, run.folder / "encoder.safetensors", overwrite=overwrite)


def _ready(run: Run | Path | str, data: Data | None, who: Who, device: str) -> tuple[Encoder, Source, torch.device]:
    where = _device(device)
    encoder = load_encoder(run, who)
    config = encoder.config
    if data is None and config["data"].startswith("<"):
        raise ValueError(f"the run was trained on a Python data set {config['data']}: give it as data=...")
    source = open_source(
        config["data"] if data is None else data, image_size=config["image_size"], labels=config["labels"], seed=config["seed"]
    )
    if source.channels != encoder.facts["channels"]:
        raise ValueError(f"the encoder takes {encoder.facts['channels']} channels, {source.name} has {source.channels}")
    encoder.backbone.module.to(where)
    return encoder, source, where


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("device='cuda' needs a GPU that PyTorch can use, and there is none; device='cpu' works")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be auto, cpu or cuda, got {device!r}") from error


__all__ = ["Data", "Run", "Split", "embed", "evaluate", "export", "open_run", "write_encoder"]
