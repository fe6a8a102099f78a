"""A run's folder belongs to one process at a time, also where several commands or a cluster's jobs share a disk."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from lightning.fabric import Fabric

try:
    import fcntl
except ImportError:  # Windows, where training goes as on disks without locks
    fcntl = None  # type: ignore[assignment]

# What disks that know no locks say, as some clusters' do: runs are made there all the same, and two commands may meet.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
_LENT = "ENTREC_CLAIMED"  # in a process's environment: what the one that began it holds for it

# The thread that holds a lock, by process and file. The kernel knows processes only: it would grant one of them its own lock
# again, and take both away with the first that is closed.
_held: dict[tuple[int, Path], int] = {}


@contextmanager
def training_alone(folder: Path, fabric: Fabric) -> Iterator[None]:
    """The run in a folder is ours until the end; the first rank claims it for all.

    Raises:
        BlockingIOError: another process trains there; on every rank, and nothing has been changed.
    """
    with claimed(folder) if fabric.is_global_zero else nullcontext(True) as ours:
        if not fabric.broadcast(ours):
            raise _taken(folder)
        yield


def refuse_taken(folder: Path) -> None:
    """Look whether a folder is free, and claim nothing: ranks that have not found each other yet would refuse each other.

    Raises:
        BlockingIOError: another process trains in the folder.
    """
    path = _lock_of(folder)
    # What a thread of ours holds is not looked at, as the lock would go with the file that is closed afterwards.
    if not _is_ours(path) and ((os.getpid(), path) in _held or _is_locked(path)):
        raise _taken(folder)


def _taken(folder: Path) -> BlockingIOError:
    return BlockingIOError(
        f"another process trains in {folder}, where nothing was changed: wait until it has ended, stop it, or choose another "
        "folder (--out)"
    )


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether the run in a folder is ours until the end; false where another process, or another thread, has it.

    Who has it may claim it again, and keeps it: the paper's runner claims a folder and then calls `train`, which does too. The
    kernel lets go of what a killed process held. It is `lockf`, not `flock`, as processes that read images are forked from the
    one that trains, would hold a `flock` too, and live some seconds longer than a parent that was killed.
    """
    path, thread = _lock_of(folder), threading.get_ident()
    key = (os.getpid(), path)
    if _is_ours(path):
        yield True
        return
    if _held.setdefault(key, thread) != thread:
        yield False
        return
    try:
        with _locked(path) as ours:
            yield ours
    finally:
        del _held[key]


def lent(folder: Path) -> dict[str, str]:
    """What a command must find in its environment to train in a folder that the process which begins it has claimed."""
    return {_LENT: f"{os.getpid()}:{_lock_of(folder)}"}


def _lock_of(folder: Path) -> Path:
    """Beside the folder, which may have to be empty; the same by whatever name the folder is called."""
    folder = folder.resolve()
    return folder.parent / f".{folder.name}.lock"


def _is_ours(path: Path) -> bool:
    """Whether this thread holds the lock, or the process that began this one does and has lent it."""
    held = _held.get((os.getpid(), path)) == threading.get_ident()
    return held or os.environ.get(_LENT) == f"{os.getppid()}:{path}"


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether the file is locked by this process until the end, after which nothing is left of it."""
    made = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    # A volume whose mount is the run's folder is like a disk without locks.
    if fcntl is None or not os.access(path.parent, os.W_OK | os.X_OK):
        yield True
        return
    descriptor = _opened(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)  # while it is held: see `_opened`
            os.close(descriptor)
        for parent in made:
            with suppress(OSError):  # a run lies there now
                parent.rmdir()


def _opened(path: Path) -> int | None:
    """The file opened and locked; None where another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # which of them depends on the system
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                os.close(descriptor)
                raise
            return descriptor
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its holder deleted it after we opened it: the name is free, or another file's


def _is_locked(path: Path) -> bool:
    """Whether another process holds the file; false where that cannot be known."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        os.lockf(descriptor, os.F_TEST, 0)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    finally:
        os.close(descriptor)
    return False


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
