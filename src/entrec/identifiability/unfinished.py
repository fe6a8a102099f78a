"""Where an experiment is, in a file: one that was stopped goes on from there, and ends as if it had not been."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from entrec.files import appearing
from entrec.identifiability.experiment import Experiment
from entrec.unpickling import UnreadableError, load_plain

FORMAT = 1
Curve = list[tuple[Any, ...]]  # of points, each of which begins with its step and its loss


def keep(path: Path | None, setting: Any, experiment: Experiment, judge: Generator, curve: Sequence[tuple[Any, ...]]) -> None:
    """Write where an experiment is, whole or not at all; nothing if there is no path, or nothing to go on from but NaN.

    Args:
        path: of the file.
        setting: of the experiment, a dataclass.
        experiment: that was run up to the curve's last point.
        judge: whose draws it is scored on.
        curve: so far.
    """
    if path is None or not math.isfinite(curve[-1][1]):
        return
    now = {"experiment": experiment.state(), "judge": judge.get_state(), "curve": [tuple(point) for point in curve]}
    with appearing(path) as unfinished:
        torch.save({"format": FORMAT, "setting": asdict(setting), **now}, unfinished)


def go_on(path: Path | None, setting: Any, experiment: Experiment, judge: Generator) -> Curve:
    """Bring an experiment that was not begun to where the file has it; returns its curve, empty if there is no file.

    Raises:
        ValueError: the file is of another setting, or damaged.
    """
    found = None if path is None else kept(path, setting)
    if found is None:
        return []
    try:
        experiment.load(found["experiment"])
        judge.set_state(found["judge"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        where = experiment.device.type
        raise ValueError(
            f"{path} is an unfinished experiment of another device than {where}, or is damaged: go on there, or remove it to "
            f"begin anew ({str(error).partition(chr(10))[0]})"
        ) from error
    curve: Curve = found["curve"]
    return curve


def kept(path: Path, setting: Any) -> dict[str, Any] | None:
    """What a file has of an unfinished experiment; None if there is none.

    Raises:
        ValueError: the file is of another setting, or damaged.
    """
    if not path.exists():
        return None
    found = _read(path)
    there, now = dict(found["setting"] or {}), asdict(setting)
    odd = "; ".join(f"{key} {there.get(key)} there, {now[key]} now" for key in now if there.get(key) != now[key])
    if odd:
        raise ValueError(f"{path} is an unfinished experiment of another setting ({odd}): go on with that, or remove it")
    return found


def _read(path: Path) -> dict[str, Any]:
    """Nothing but tensors and plain values is unpickled."""
    wanted = {"format", "setting", "experiment", "judge", "curve"}
    try:
        found = load_plain(path)
    except UnreadableError as error:
        raise ValueError(f"{path} is no unfinished experiment, or is damaged: remove it to begin anew ({error})") from error
    if not isinstance(found, dict) or found.keys() != wanted or found["format"] != FORMAT:
        raise ValueError(f"{path} is no unfinished experiment, or one of another version: remove it to begin anew")
    return found
