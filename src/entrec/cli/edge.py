"""What commands check before they begin, and how they fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from textwrap import TextWrapper
from typing import NoReturn

import typer
from rich.console import Console

from entrec.files import require_writable
from entrec.saying import show_line

console = Console()
_NARROW = 20  # columns; a terminal can say that it has none


def require(*modules: str, extra: str) -> None:
    """Stop unless these packages are installed."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        fail(f"this command needs {' and '.join(missing)}: pip install 'entrec[{extra}]'")


def require_free(folder: Path, marker: str, overwrite: bool) -> None:
    """Stop if the folder holds results already, or cannot be written to."""
    if folder.exists() and not folder.is_dir():
        fail(f"--out must be a folder, but {folder} is a file")
    if (folder / marker).exists() and not overwrite:
        fail(f"{folder} already holds results; choose another --out, or replace them with --overwrite")
    with failing_clearly():
        require_writable(folder)


def require_free_file(path: Path, overwrite: bool, option: str = "--out") -> None:
    """Stop if the file is there already, or cannot be written."""
    if path.is_dir():
        fail(f"{option} must be a file, but {path} is a folder")
    if path.exists() and not overwrite:
        fail(f"{path} already exists; choose another {option}, or replace it with --overwrite")
    with failing_clearly():
        require_writable(path)


def require_device(device: str) -> None:
    """Stop unless PyTorch can compute there."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        told = str(error).splitlines()[0]
        # Of devices that it knows by name alone, PyTorch lists all that it has code for.
        told = "this PyTorch has no code for it" if "Could not run" in told else told
        fail(f"--device {device} cannot be used: {told}")


def say(text: str, style: str | None = None) -> None:
    """Print a line as it is."""
    show_line(text, console, style)


def fail(message: str) -> NoReturn:
    """Stop with a message, and exit status 2."""
    shown, word = Console(stderr=True), "error:"
    shown.width = max(shown.width, _NARROW)
    # Broken at spaces, where the terminal ends; Rich would break a long path anywhere.
    breaking = TextWrapper(shown.width, break_long_words=False, break_on_hyphens=False, expand_tabs=False)
    told = "\n".join(map(breaking.fill, f"{word} {message}".splitlines()))
    shown.print(word, style="red", end="")
    show_line(told.removeprefix(word), shown)
    raise typer.Exit(2)


@contextmanager
def failing_clearly() -> Iterator[None]:
    """Turn the library's own complaints, and a lack of memory, into a message and exit status 2.

    Anything else is a bug and shows its traceback.
    """
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))
    except (RuntimeError, MemoryError) as error:
        name = type(error).__name__  # PyTorch's own classes are not imported for a command that needs none of it
        if name == "DivergedError":
            fail(str(error))
        if name in ("MemoryError", "OutOfMemoryError") or "can't allocate memory" in str(error):
            fail(f"there is not the memory for this; a smaller batch needs less ({str(error).partition(chr(10))[0] or name})")
        raise
