"""Results as JSON files, and back."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from entrec.files import appearing
from entrec.identifiability.content_style import ContentStyle, Isolation
from entrec.identifiability.lab import Point, Result, Setting


def write(result: Result | Isolation, path: Path) -> None:
    """Write a result, whole or not at all."""
    with appearing(path) as unfinished:
        unfinished.write_text(json.dumps(_plain(asdict(result)), indent=1) + "\n")


def read(path: Path) -> Result | Isolation:
    """What `write` wrote.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        found = _numbers(json.loads(path.read_text()))
        setting = found["setting"]
        if "content" in setting:
            parts = {key: tuple(found[key]) for key in ("content", "style")}
            curve = [(step, loss) for step, loss in found["curve"]]
            return Isolation(**{**found, **parts, "setting": ContentStyle(**setting), "curve": curve})
        return Result(**{**found, "setting": Setting(**setting), "curve": [Point(**x) for x in found["curve"]]})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no result of an experiment on identifiability: {error}") from error


def _plain(x: Any) -> Any:
    """JSON has no NaN and no infinity: they become words."""
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x


def _numbers(x: Any) -> Any:
    """The words as numbers again."""
    if isinstance(x, dict):
        return {key: _numbers(value) for key, value in x.items()}
    if isinstance(x, list):
        return [_numbers(value) for value in x]
    return float(x) if x in ("nan", "inf", "-inf") else x
