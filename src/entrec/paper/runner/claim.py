"""A cell belongs to one process at a time, also where several commands or a cluster's jobs share a folder."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What disks that know no locks say, as some clusters' do: runs are made there all the same, and two commands may meet.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether the run in a folder is this process's until the end; false where another process has it.

    The kernel lets go of what a killed process held. It is `lockf`, not `flock`, as processes that read images are forked from
    the one that trains, would hold a `flock` too, and live some seconds longer than a parent that was killed.
    """
    path = folder.parent / f".{folder.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)  # while it is held: see `_locked`
            os.close(descriptor)


def _locked(path: Path) -> int | None:
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


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
