"""Features as files that others can read."""

from pathlib import Path

import numpy as np
from safetensors.torch import save_file

from entrec.evaluation.features import Features
from entrec.files import appearing, refuse_existing


def write_features(features: Features, path: Path | str, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Write features, and labels where there are any, in the format that the suffix names.

    `.npy` holds the values, and NAME.labels.npy beside it the labels. `.safetensors` holds both, as `features` and `labels`,
    and in its metadata as `skipped` the names of data without a row, one per line.

    Args:
        features: what to write; labels that are all -1 are none.
        path: NAME.npy or NAME.safetensors.
        overwrite: replace files of an earlier call.
    Returns: the files that were written.
    """
    path = Path(path)
    if path.suffix not in (".npy", ".safetensors"):
        raise ValueError(f"path must end in .npy or .safetensors, got {str(path)!r}")
    labelled = bool((features.labels >= 0).any())
    beside = path.with_name(f"{path.stem}.labels.npy")
    if not overwrite:
        refuse_existing(path, *([beside] if path.suffix == ".npy" else []))
    if path.suffix == ".npy":
        return _write_npy(features, path, beside, labelled)
    tensors = {"features": features.values, **({"labels": features.labels} if labelled else {})}
    with appearing(path) as unfinished:
        save_file(
            {name: x.cpu().contiguous() for name, x in tensors.items()}, unfinished, {"skipped": "\n".join(features.skipped)}
        )
    return (path,)


def _write_npy(features: Features, path: Path, beside: Path, labelled: bool) -> tuple[Path, ...]:
    with appearing(path) as unfinished:
        np.save(unfinished, features.values.cpu().numpy())
    if not labelled:
        beside.unlink(missing_ok=True)  # labels of other features
        return (path,)
    with appearing(beside) as unfinished:
        np.save(unfinished, features.labels.cpu().numpy())
    return path, beside
