"""By what data are known again, on another machine and under another path."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from entrec.data import Source

_PIXELS = 5e-3  # that means over all pixels may differ by: JPEG decoders do not agree on the last bit


def fingerprint(source: Source) -> dict[str, Any]:
    """Of a data set, from what is known of it once it is open; no image is read for it."""
    labels = getattr(source.train, "labels", None)
    return {
        "train": len(source.train),  # type: ignore[arg-type]
        "test": 0 if source.test is None else len(source.test),  # type: ignore[arg-type]
        "classes": len(source.classes),
        "names": _hash(" ".join(source.classes).encode()),
        "labels": _hash(labels.cpu().numpy().tobytes()) if isinstance(labels, Tensor) else None,
        "mean": [round(x, 4) for x in source.mean],
        "std": [round(x, 4) for x in source.std],
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What tells one data set from another, in words; nothing where they are the same."""
    return [f"{key} {before.get(key)} there, {now[key]} now" for key in now if not _same(before.get(key), now[key])]


def _same(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(math.isclose(x, y, abs_tol=_PIXELS) for x, y in zip(before, now, strict=True))
    return bool(before == now)


def _hash(said: bytes) -> str:
    return hashlib.sha256(said).hexdigest()[:12]
