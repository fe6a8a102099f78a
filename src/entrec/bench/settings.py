"""What a benchmark of a loss is to measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch

from entrec import checks
from entrec.bench.contestants import What
from entrec.pairwise import Precision

DType = Literal["float64", "float32", "bfloat16", "float16"]

_ROWS = {"cpu": (512, 2048, 8192), "cuda": (512, 4096, 16384, 65536, 131072)}
_REPEATS = {"cpu": 3, "cuda": 20}


@dataclass(frozen=True)
class Settings:
    """What to measure; `settings` makes them, checked and with the device's defaults, and says what each is."""

    what: What
    k: tuple[int, ...]
    d: tuple[int, ...]
    kappa: float
    device: str
    precision: Precision
    dtype: DType
    repeats: int
    dense_limit_gb: float | None


def settings(
    what: str = "entropy",
    k: Sequence[int] = (),
    d: Sequence[int] = (128,),
    kappa: float = 10.0,
    device: str = "auto",
    precision: str = "fast",
    dtype: str = "float32",
    repeats: int | None = None,
    dense_limit_gb: float | None = None,
) -> Settings:
    """Check the choices and fill in what suits the device.

    Args:
        what: `"entropy"` (Joe's, of two views), `"er"` (`ERLoss`) or `"ntxent"` (`NTXentLoss`).
        k: rows of each view, each at least 2; those of the device if empty.
        d: dimensions, each at least 2.
        kappa: concentration of the kernel, or 1 / temperature.
        device: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"` for CUDA where there is one.
        precision: of our pairwise sums, `"fast"` or `"ieee"`; on CUDA it also lets dense float32 products use TF32, or not.
        dtype: of the projections.
        repeats: steps to time at the least.
        dense_limit_gb: skip contestants that need more than that; without it, those that do not fit in the free memory.
    """
    checks.choice("what", what, What)
    checks.choice("precision", precision, Precision)
    checks.choice("dtype", dtype, DType)
    for name, values in (("k", k), ("d", d)):
        for value in values:
            checks.whole(name, value, 2)
    if not d:
        raise ValueError("d must be at least one dimension, got none")
    checks.positive("kappa", kappa)
    if dense_limit_gb is not None:
        checks.positive("dense_limit_gb", dense_limit_gb)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = device.partition(":")[0]
    if kind not in _ROWS:
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {device!r}")
    return Settings(
        cast(What, what),
        tuple(k) or _ROWS[kind],
        tuple(d),
        kappa,
        device,
        cast(Precision, precision),
        cast(DType, dtype),
        _REPEATS[kind] if repeats is None else checks.whole("repeats", repeats, 1),
        dense_limit_gb,
    )
