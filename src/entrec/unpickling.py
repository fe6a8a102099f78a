"""Files of torch.save's, of which nothing but tensors and plain values is ever read."""

import pickle
import struct
from pathlib import Path
from typing import Any

import torch


class UnreadableError(ValueError):
    """Why a file is not read."""


class HoldsObjectsError(UnreadableError):
    """It holds what only running its code could read, as far as can be told from a file that may be damaged."""


def load_plain(path: Path) -> Any:
    """What a file holds; nothing in it is run.

    Raises:
        OSError: there is none, or it may not be read.
        UnreadableError: it is damaged, no file of torch.save's, or holds objects.
    """
    path.open("rb").close()  # what is wrong with the file itself is the system's to say
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # whose text is a page of advice to read it all the same
        raise HoldsObjectsError(
            "it holds Python objects, which only running its code could read, and that is refused"
        ) from error
    except (
        RuntimeError, EOFError, OSError, ValueError, LookupError, AssertionError, AttributeError, TypeError, ArithmeticError,
        struct.error,
    ) as error:  # fmt: skip
        why = str(error).splitlines() or [type(error).__name__]
        raise UnreadableError(why[0].split(". ")[0]) from error
