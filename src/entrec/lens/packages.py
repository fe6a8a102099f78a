"""A callback that both Lightning packages know.

`lightning.pytorch` and `pytorch_lightning` are two packages with the same code, and a Trainer of one does not know callbacks of
the other. A callback made through these is of both as soon as both are there.
"""

import sys
from functools import cache
from typing import Any

from lightning.pytorch import Callback


def fitting(cls: Any) -> Any:
    """The class to make an object of: a callback's own, or one that is of the other package too where that is in use."""
    other = getattr(sys.modules.get("pytorch_lightning"), "Callback", Callback)
    return cls if issubclass(cls, other) else _of_both(cls, other)


def plain(cls: Any) -> Any:
    """The class that `fitting` was asked for."""
    return getattr(cls, "_plain", cls)


def anew(cls: Any) -> Any:
    """An object without its state, for pickle: in another process it may have to be of both packages again."""
    return cls.__new__(cls)


@cache
def _of_both(cls: Any, other: Any) -> Any:
    """The class, derived from the other package's Callback too, under the same name: checkpoints know it by that."""
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, "_plain": cls}
    return type(cls.__name__, (cls, other), names)
