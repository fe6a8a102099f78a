"""A study back from its results.json."""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from entrec.paper.convergence.distributions import VMF, Distribution, StandardGaussian
from entrec.paper.convergence.study import Study


def read(path: Path) -> Study:
    """What `write` wrote.

    Raises:
        ValueError: there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise ValueError(f"there is no {path} to make tables and figures of: leave out --render to measure first")
    try:
        found: Study = _as(Study, json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no results of entrec paper convergence: {error!r}") from error
    return found


def _as(kind: Any, value: Any) -> Any:
    """A value of JSON in the type that it was written from."""
    if kind is Distribution:  # of which curves by bandwidth have these two
        return VMF(**value) if "kappa" in value else StandardGaussian(**value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{field.name: _as(hints[field.name], value[field.name]) for field in fields(kind)})  # type: ignore[operator]
    of = get_args(kind)
    if get_origin(kind) is list:
        return [_as(of[0], x) for x in value]
    if get_origin(kind) is tuple:
        return tuple(_as(one, x) for one, x in zip(of, value, strict=True))
    if get_origin(kind) is dict:  # whose keys JSON made words
        return {of[0](key): _as(of[1], x) for key, x in value.items()}
    return value
