"""A `.tar` of a folder of images, read without being unpacked."""

import lzma
import posixpath
import tarfile
import zlib
from pathlib import Path
from typing import IO

from entrec.data.files import EXTENSIONS
from entrec.data.folder import Listing, from_listing
from entrec.data.source import Source

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")
_IN_MEMORY = 4 * 2**30


def open_archive(
    archive: Path,
    *,
    image_size: int | None = None,
    labels: bool | None = None,
    strict: bool = False,
    channels: int | None = None,
) -> Source:
    """The images in a tar archive of a folder, as `entrec.data.folder.open_folder` sees that folder.

    The files' bytes are read into memory and nothing is written anywhere. One folder around everything (the usual way to
    pack) is looked through. An archive is refused whole if any member's path, or the target of a link, leaves its folder, or
    if a member is a device; and if its images take more than 4 GiB.
    """
    try:
        found = dict(sorted(_contents(archive).items()))
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(f"{archive} cannot be read as a tar archive: {error}") from error
    names = _unwrapped(list(found))
    listing = Listing(str(archive), names, [f"{archive}:{name}" for name in found], list(found.values()))
    return from_listing(listing, image_size, labels, strict, channels)


def _contents(archive: Path) -> dict[str, bytes]:
    """The bytes of every image by its path inside the archive."""
    found: dict[str, bytes] = {}
    total = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            _refuse_outside(archive, member)
            name = posixpath.normpath(member.name)
            hidden = any(part.startswith(".") for part in name.split("/"))
            if hidden or member.isdir() or not name.lower().endswith(EXTENSIONS):
                continue
            content = _opened(tar, member)
            if content is None:
                continue
            total += member.size
            if total > _IN_MEMORY:
                raise ValueError(f"the images in {archive} take more than 4 GiB: unpack it and give the folder")
            found[name] = content.read()
    return found


def _opened(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes] | None:
    """A member's bytes; None of what is no file, and of a link that leads to none, which is left out of a folder too."""
    try:
        return tar.extractfile(member)
    except (KeyError, RecursionError):  # there is no such member; links go round in a circle
        return None


def _refuse_outside(archive: Path, member: tarfile.TarInfo) -> None:
    """Nothing in an archive may point out of the folder it is unpacked to."""
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise ValueError(f"{archive} is refused: its member {member.name!r} is neither a file, a folder nor a link")
    paths = [member.name]
    if member.issym():
        paths.append(posixpath.join(posixpath.dirname(member.name), member.linkname))
    elif member.islnk():
        paths.append(member.linkname)
    for path in paths:
        if path.startswith("/") or posixpath.normpath(path).split("/")[0] == "..":
            raise ValueError(f"{archive} is refused: its member {member.name!r} leaves the folder ({path})")


def _unwrapped(names: list[str]) -> list[str]:
    """The paths without a folder that is around all of them."""
    while names and all("/" in name for name in names) and len({name.split("/")[0] for name in names}) == 1:
        names = [name.split("/", 1)[1] for name in names]
    return names
