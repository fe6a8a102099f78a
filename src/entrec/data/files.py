"""Images in files, decoded when they are asked for."""

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import Dataset

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
_JPEG = b"\xff\xd8\xff"
GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
_UNREADABLE = (  # whatever Pillow raises, given bytes that are not an image
    OSError, SyntaxError, TypeError, ValueError, EOFError, IndexError, struct.error, zlib.error, Image.DecompressionBombError,
)  # fmt: skip


class CorruptImage(ValueError):  # noqa: N818 - it says what the image is
    """An image file that cannot be decoded: `name` says which, `why` the reason, and `strict` whether the run must stop.

    Out of a worker process torch makes the error anew, from its message alone; `name` is then what was said of the image.
    """

    def __init__(self, name: str, why: str = "", strict: bool = True) -> None:
        name = name if why else _said(name, type(self))
        super().__init__(name, why, strict)  # all of them: by these it is pickled
        self.name, self.why, self.strict = name, why, strict

    def __str__(self) -> str:
        return f"cannot decode the image {self.name}: {self.why}" if self.why else self.name

    @property
    def described(self) -> str:
        """The name and the reason, as lists of what was left out have them: the same of a file at every try."""
        return f"{self.name}: {self.why}" if self.why else self.name


_OF_16_BITS = ("PNG", "PPM")  # formats of which Pillow makes 32-bit pixels, some of its versions of the first


class UnusableImage(ValueError):  # noqa: N818 - it says what the image is
    """An image that is whole, and of a kind that cannot be trained on."""


class NothingReadable(ValueError):  # noqa: N818 - it says what was found
    """Many image files in a row that cannot be decoded: rather the disk's fault than theirs."""

    def __init__(self, message: str) -> None:
        super().__init__(_said(message, type(self)))


class Files(Dataset[tuple[Tensor, int]]):
    """Images by path, each decoded when it is read. A corrupt file is found only then.

    Args:
        paths: of the files, or their names in an archive.
        labels: int64 (N,), or `None` for -1 everywhere.
        channels: 3 makes every image RGB, 1 makes every image grey.
        strict: whether a corrupt file must stop the run (`entrec.data.loader` otherwise takes another and names it).
        contents: the bytes of each file, where it lies in memory instead.
    """

    def __init__(
        self,
        paths: Sequence[str],
        labels: Tensor | None = None,
        channels: int = 3,
        strict: bool = False,
        contents: Sequence[bytes] | None = None,
    ) -> None:
        self.paths = list(paths)
        self.labels = torch.full((len(self.paths),), -1) if labels is None else labels
        self.channels, self.strict, self.contents = channels, strict, contents

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.decoded(index), int(self.labels[index])

    def decoded(self, index: int) -> Tensor:
        """The image, uint8 (C, H, W); `CorruptImage` where it cannot be decoded."""
        content = self.paths[index] if self.contents is None else self.contents[index]
        try:
            return decode(content, self.channels)
        except _UNREADABLE as error:
            raise CorruptImage(self.paths[index], _reason(error), self.strict) from error

    def look(self, index: int) -> tuple[int, int, bool] | None:
        """Height, width and whether it is grey, from the file's header alone; `None` where that cannot be read."""
        try:
            with _opened(self.paths[index] if self.contents is None else self.contents[index]) as image:
                return image.height, image.width, image.mode in GREY_MODES
        except _UNREADABLE:
            return None


def decode(content: str | Path | bytes, channels: int = 3) -> Tensor:
    """The image in a file, or in a file's bytes, as uint8 (channels, H, W), the way up that its EXIF data say.

    Palettes become the colours they stand for, and transparency is left out; of an animation it is the first picture. Deeper
    pixels become 8 bits by a rule that is the same for all images of a kind (see `from_pil`). Colours of JPEG files come
    straight from libjpeg-turbo, pixel by pixel in memory, which is how crops are cut fastest.
    """
    stored = content if isinstance(content, bytes) else Path(content).read_bytes()
    if channels == 3 and stored.startswith(_JPEG):
        pixels = _decode_jpeg(stored)
        if pixels is not None:
            return pixels
    with Image.open(io.BytesIO(stored)) as image:
        ImageOps.exif_transpose(image, in_place=True)
        return from_pil(image, channels)


def _decode_jpeg(stored: bytes) -> Tensor | None:
    """Half as fast again as by way of Pillow, and to the bit the same; None for what it does not know or cannot read."""
    try:
        from torchvision.io import ImageReadMode, decode_jpeg  # slow to import
    except ImportError:  # some day: torchvision 0.29 announces that its decoders will move elsewhere
        return None
    data = torch.frombuffer(bytearray(stored), dtype=torch.uint8)  # of bytes themselves torch warns, as they are read-only
    try:
        pixels: Tensor = decode_jpeg(data, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    except RuntimeError:  # Pillow knows more kinds, and better words for what is broken
        return None
    return pixels


def from_pil(image: Image.Image, channels: int) -> Tensor:
    """A PIL image as uint8 (channels, H, W), with 1 or 3 channels.

    Of 16 bits the 8 high ones are kept; signed and 32-bit pixels are taken for 16-bit ones, where all are within 0 and 65535;
    floating-point ones within 0 and 1 become 0 to 255. Nothing is clipped, and no image is scaled by its own range, which would
    take away what differs between images: pixels beyond these ranges are refused. So are 32-bit ones that all fit into 8 bits,
    of which nothing would be left: they were 8-bit ones, most likely. (In PNG and PGM files such an image is a dark one.)

    Raises:
        UnusableImage: it has pixels that cannot be made such.
    """
    if image.mode == "F" or image.mode.startswith("I"):
        image = _of_8_bits(image)
    elif image.mode == "P":
        image = image.convert("RGBA")  # first: a palette may hold transparency that RGB has no place for
    pixels = torch.from_numpy(np.array(_converted(image, "L" if channels == 1 else "RGB")))
    return pixels[None] if channels == 1 else pixels.permute(2, 0, 1).contiguous()


def _of_8_bits(image: Image.Image) -> Image.Image:
    """A grey image of floating-point, signed, 16-bit or 32-bit pixels."""
    values, floats = np.asarray(image), image.mode == "F"
    least, most, top = values.min(), values.max(), 1 if floats else 65535
    if not 0 <= least <= most <= top:  # nor is a NaN within
        raise UnusableImage(
            f"{'floating-point' if floats else 'signed and 32-bit'} pixels are read where all are within 0 and {top}, and "
            f"these go from {least!s} to {most!s}: scale all images alike, or save them with 8 or 16 bits"
        )
    if floats:
        return Image.fromarray(np.rint(255 * values).astype(np.uint8))
    if image.mode == "I" and image.format not in _OF_16_BITS and 0 < most < 256:  # of 8 bits nothing would be left
        told = f"these, of {most} at the most, have none"
        raise UnusableImage(f"signed and 32-bit pixels keep the 8 high bits of 16, and {told}: save them with 8 bits")
    return Image.fromarray((values >> 8).astype(np.uint8))


def _converted(image: Image.Image, mode: str) -> Image.Image:
    image.load()  # what is broken says so here, and with the same kind of error
    try:
        return image.convert(mode)
    except ValueError as error:
        wanted = "grey, palette and RGB images of 8 or 16 bits per channel are wanted"
        raise UnusableImage(f"it holds pixels of Pillow's mode {image.mode}, which cannot be made {mode}; {wanted}") from error


def _reason(error: Exception) -> str:
    """Why an image cannot be decoded, in a line that is the same at every try: Pillow's own may hold an address in memory."""
    if isinstance(error, UnusableImage):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a kind that Pillow knows"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # which, unlike the error, does not name the file again
    return " ".join(f"{error} ({type(error).__name__})".split())


def _said(message: str, kind: type[Exception]) -> str:
    """What an error of this kind said, where torch gives the whole traceback of a worker process as its message."""
    traceback, _, said = message.rpartition(f"{kind.__qualname__}: ")
    return " ".join(said.split("\n")).strip() if "Traceback" in traceback else message


def _opened(content: str | Path | bytes) -> Image.Image:
    return Image.open(io.BytesIO(content) if isinstance(content, bytes) else content)
