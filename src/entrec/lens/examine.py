"""`entrec lens` as a function: from files or tensors to readings and a verdict."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from entrec import checks
from entrec.lens.embeddings import Embeddings, Read, read, usable
from entrec.lens.readings import CodeReadings, Readings, look, look_at_codes
from entrec.lens.verdict import Verdict, diagnose

MAX_ROWS = 10_000  # pairs of rows are compared, a hundred million of them: half a minute on a slow core


class Examined(NamedTuple):
    """What was looked at and what was found.

    Args:
        readings: the numbers.
        verdict: what they mean.
        embeddings: the rows that were looked at, and which were left out.
        notes: what the reader should know about them, a sentence each.
    """

    readings: Readings | CodeReadings
    verdict: Verdict
    embeddings: Embeddings
    notes: tuple[str, ...]


def examine(
    z1: str | Path | Tensor | np.ndarray[Any, Any],
    z2: str | Path | Tensor | np.ndarray[Any, Any] | None = None,
    *,
    kappa: float = 10.0,
    codes: bool = False,
    method: str = "",
    max_rows: int = MAX_ROWS,
    seed: int = 0,
    er: bool = False,
) -> Examined:
    """Look at embeddings of one view, or of two views of the same data, and say what they are.

    Args:
        z1: a file (.npy, .pt, .safetensors, .csv) or an array, (rows, dimensions).
        z2: of another view of the same data, row by row.
        kappa: concentration of the kernel; the inverse of the temperature that a contrastive loss had.
        codes: rows are distributions over codes, or logits of them, and not embeddings.
        method: that made them (byol, dino, ...), whose remedies are named too.
        max_rows: look at no more than these, a sample of all.
        seed: of that sample.
        er: they were trained with the ER objective, so that it is not named as a remedy.

    Example:
        >>> z = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
        >>> examine(torch.ones(300, 8) + 1e-3 * z).verdict.name
        'collapsed'
    """
    checks.whole("max_rows", max_rows, 2)
    tables = [_table(name, z) for name, z in (("z1", z1), ("z2", z2)) if z is not None]
    views = [read.table for read in tables]
    found = usable(*views, zero=codes)
    notes = (*dict.fromkeys(note for read in tables for note in read.notes), *_left_out(found))
    if len(found.views[0]) > max_rows:
        chosen = torch.randperm(len(found.views[0]), generator=torch.Generator().manual_seed(seed))[:max_rows].sort().values
        notes += (f"{max_rows} rows of {len(found.views[0])} were looked at, chosen at random.",)
        found = found._replace(views=tuple(view[chosen] for view in found.views))
    readings = look_at_codes(*map(_distributions, found.views)) if codes else look(*found.views, kappa=kappa)
    if len(views) == 1:
        notes += ("Of one view it cannot be said what it tells of another: give that one's embeddings too.",)
    return Examined(readings, diagnose(readings, method, len(found.broken), found.rows, er), found, notes)


def _table(name: str, given: Any) -> Read:
    if isinstance(given, str | Path):
        return read(Path(given))
    found = torch.as_tensor(given).detach().cpu()
    checks.batch(name, found)
    return Read(found)


def _distributions(rows: Tensor) -> Tensor:
    """Rows that sum to one, as nearly as bfloat16 lets them, are distributions; others are taken for logits."""
    exact = rows.double()
    sums = bool(((exact.sum(dim=1) - 1).abs() < 1e-2).all()) and bool((exact >= 0).all())
    return exact / exact.sum(dim=1, keepdim=True) if sums else exact.softmax(dim=1)


def _left_out(found: Embeddings) -> tuple[str, ...]:
    kinds = (("hold NaN or infinity", found.broken), ("are all zero and have no direction", found.zero))
    return tuple(f"{len(rows)} of {found.rows} rows {what} and were left out: {_named(rows)}." for what, rows in kinds if rows)


def _named(rows: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{' and more' if len(rows) > 5 else ''}"
