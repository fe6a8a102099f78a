"""Embeddings from anywhere: .npy, .pt, .safetensors and .csv files, and what is wrong with them."""

import csv
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from entrec.unpickling import HoldsObjectsError, UnreadableError, load_plain

_NO_NUMBERS = ("", "na", "n/a", "null", "none")
_NO_DIMENSIONS = ("id", "index", "label", "class", "target", "row")
TYPES = (".npy", ".pt", ".pth", ".safetensors", ".csv")


class Read(NamedTuple):
    """A table of numbers (k, d), and what of its file was left out, a sentence each."""

    table: Tensor
    notes: tuple[str, ...] = ()


class Embeddings(NamedTuple):
    """Rows that can be looked at.

    Args:
        views: one or two tensors (k, d), row i of both of the same datum, without the rows below.
        broken: numbers of the rows, from 0, that hold NaN or infinity in one of the views.
        zero: numbers of the rows that are all zero in one of the views, and so have no direction.
        rows: how many there were.
    """

    views: tuple[Tensor, ...]
    broken: tuple[int, ...]
    zero: tuple[int, ...]
    rows: int


def read(path: Path) -> Read:
    """The one table of numbers in a file, (k, d), in float32 or better.

    Raises:
        ValueError: it is of another kind, holds no table or several, or would need to run code to be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    kind = path.suffix.lower()
    notes: tuple[str, ...] = ()
    if kind == ".npy":
        found = _numpy(path)
    elif kind in (".pt", ".pth"):
        found = _only(path, _torch(path))
    elif kind == ".safetensors":
        found = _only(path, load_safetensors(path))
    elif kind == ".csv":
        found, notes = _csv(path)
    else:
        raise ValueError(f"{path} must be one of {', '.join(TYPES)}, got {kind or 'no extension'}")
    if found.ndim != 2:
        raise ValueError(f"{path} must hold a table of shape (rows, dimensions), got shape {tuple(found.shape)}")
    if found.is_complex() or found.dtype == torch.bool or found.is_quantized:
        raise ValueError(f"{path} must hold real numbers, got {found.dtype}")
    if found.layout != torch.strided:
        raise ValueError(f"{path} must hold a dense table, got {found.layout}: save z.to_dense()")
    return Read(found.detach().to(torch.float64 if found.dtype == torch.float64 else torch.float32), notes)


def usable(*views: Tensor, zero: bool = False) -> Embeddings:
    """The rows of one view or two that are numbers and have a direction.

    Args:
        views: tables (k, d).
        zero: rows that are all zero are usable too: logits of an even distribution.

    Raises:
        ValueError: the views do not fit each other, or fewer than two rows are left.
    """
    if len(views) == 2 and views[0].shape != views[1].shape:
        raise ValueError(
            f"two views must have the same rows and dimensions, got shapes {tuple(views[0].shape)} and {tuple(views[1].shape)}"
        )
    finite, nonzero = (_everywhere(test, views) for test in (_finite, _finite if zero else _nonzero))
    keep = finite & nonzero
    if int(keep.sum()) < 2:
        raise ValueError(
            f"at least 2 rows are needed, got {int(keep.sum())} that can be used of {len(keep)}: {int((~finite).sum())} hold "
            f"NaN or infinity, {int((finite & ~nonzero).sum())} are all zero"
        )
    kept = tuple(view[keep] for view in views) if not bool(keep.all()) else views
    return Embeddings(kept, _places(~finite), _places(finite & ~nonzero), len(keep))


def _finite(view: Tensor) -> Tensor:
    return view.isfinite().all(dim=1)


def _nonzero(view: Tensor) -> Tensor:
    return (view != 0).any(dim=1)


def _everywhere(test: Any, views: tuple[Tensor, ...]) -> Tensor:
    found: Tensor = torch.stack([test(view) for view in views]).all(dim=0)
    return found


def _places(marked: Tensor) -> tuple[int, ...]:
    return tuple(marked.nonzero()[:, 0].tolist())


def _numpy(path: Path) -> Tensor:
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError, BadZipFile, TokenError) as error:
        if "pickle" in str(error):
            raise ValueError(
                f"{path} is damaged, or holds Python objects, which only running code could read: save an array of numbers"
            ) from None
        raise ValueError(f"{path} is no array of NumPy's: {error}") from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
        kind = found.dtype if isinstance(found, np.ndarray) else "an archive of several arrays"
        raise ValueError(f"{path} must hold one array of numbers, got {kind}")
    return torch.from_numpy(found.astype(np.float32 if found.dtype.itemsize <= 4 else np.float64))


def _torch(path: Path) -> Any:
    try:
        return load_plain(path)
    except HoldsObjectsError as error:
        raise ValueError(f"{path} is damaged, or {error}: save the tensor alone, torch.save(z, file)") from error
    except UnreadableError as error:
        raise ValueError(f"{path} is no file of torch.save's, or damaged: {error}") from error


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from error


def _only(path: Path, content: Any) -> Tensor:
    """The tensor itself, or the only table among named ones."""
    if isinstance(content, Tensor):
        return content
    tables = (
        {key: x for key, x in content.items() if isinstance(x, Tensor) and x.ndim == 2} if isinstance(content, dict) else {}
    )
    if len(tables) != 1:
        named = f"tables {', '.join(map(str, list(tables)[:5]))}" if tables else f"{type(content).__name__} without a table"
        more = f" and {len(tables) - 5} more; weights of an encoder need --backbone and --data" if len(tables) > 5 else ""
        raise ValueError(f"{path} must hold one table of numbers, got {named}{more}")
    return next(iter(tables.values()))


def _csv(path: Path) -> Read:
    """Numbers separated by commas, with or without a line of names; an empty cell, or one that says NA, is no number.

    A column without a name comes first where pandas or R wrote the numbers of the rows beside them: it is left out, as are
    columns by whose names they are no dimensions (id, label, ...).
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no text of comma-separated values: {error}") from error
    notes: tuple[str, ...] = ()
    if lines and _are_names(lines[0]):
        names = [cell.strip() for cell in lines[0]]
        left = [place for place, name in enumerate(names) if name.lower() in _NO_DIMENSIONS or (place == 0 and not name)]
        lines = [[cell for place, cell in enumerate(line) if place not in left] for line in lines[1:]]
        notes = (f"The first line of {path.name} was taken for names of columns.",)
        notes += tuple(f"Column {names[place]!r} was left out, as it is no dimension." for place in left)
    if not lines:
        raise ValueError(f"{path} holds no rows of numbers")
    width = len(lines[0])
    values = np.empty((len(lines), width))
    for number, line in enumerate(lines):
        if len(line) != width:
            raise ValueError(
                f"{path} must have as many cells in every row: row {number} has {len(line)}, the first has {width}"
            )
        try:
            values[number] = [_number(cell) for cell in line]
        except ValueError:
            odd = next(cell for cell in line if not _are_numbers([cell]))
            raise ValueError(f"{path} must hold numbers, got {odd!r} in row {number}") from None
    return Read(torch.from_numpy(values), notes)


def _number(cell: str) -> float:
    return float("nan") if cell.strip().lower() in _NO_NUMBERS else float(cell)


def _are_names(cells: list[str]) -> bool:
    """Words, or the 0, 1, 2, ... with which pandas names columns that have no names."""
    named = [cell.strip() for cell in (cells if cells[0].strip() else cells[1:])]
    return not _are_numbers(cells) or (len(named) > 2 and named == [str(place) for place in range(len(named))])


def _are_numbers(cells: list[str]) -> bool:
    try:
        _ = [_number(cell) for cell in cells]
    except ValueError:
        return False
    return True


def weights_in(path: Path) -> dict[str, Tensor]:
    """The tensors by name in a file of torch.save's: a state dict, or one under `state_dict`, `model` or `teacher`.

    Raises:
        ValueError: there is none, or reading it would run code.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    content = _torch(path)
    for key in ("state_dict", "model", "teacher"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(x, Tensor) for x in content.values()):
        raise ValueError(f"{path} holds no state dict: a dictionary of tensors by name")
    return {str(key): value for key, value in content.items()}
