"""Files that appear whole or not at all, and never in the place of others unasked."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to: the file moves to `path` at the end, or is deleted after an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        unfinished.touch()
        mode = unfinished.stat().st_mode  # a new file's, which some libraries make narrower
        unfinished.unlink()
        yield unfinished
        unfinished.chmod(mode)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())  # or a crash of the machine could leave the new name with old content, or none
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def require_writable(path: Path) -> None:
    """A file, or a folder, can be made at the path: known before hours of computing, and nothing is left there.

    Raises:
        NotADirectoryError: what should be its folder is a file.
        OSError: nothing can be written there.
    """
    above = path if path.is_dir() else path.absolute().parent
    while not above.exists():  # folders that are missing are made
        above = above.parent
    if not above.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {above} is no folder")
    try:
        with NamedTemporaryFile(dir=above, prefix=".entrec"):  # rights tell too little: a disk may be full, or read-only
            pass
    except OSError as error:
        raise type(error)(f"{path} cannot be written: in {above} no file can be made ({error.strerror})") from error


def refuse_existing(*paths: Path) -> None:
    """None of the paths is taken."""
    taken = [str(path) for path in paths if path.exists()]
    if taken:
        raise FileExistsError(
            f"{' and '.join(taken)} exist{'s' if len(taken) == 1 else ''}: ask for overwrite=True (--overwrite) to replace"
        )


def readable(name: str) -> str:
    r"""A file's name as text that every file and terminal takes: bytes that are not UTF-8 become \udc.. escapes."""
    return name.encode("utf-8", "backslashreplace").decode()
