"""Images in files: every format against Pillow, and what is not an image."""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.v2.functional import pil_to_tensor

from entrec.data import CorruptImage, Files
from entrec.data.files import EXTENSIONS, decode, from_pil
from tests.data.pictures import picture, save, truncate


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_every_extension_is_decoded(extension: str, tmp_path: Path) -> None:
    path = save(tmp_path / f"a{extension}")
    expected: Tensor = pil_to_tensor(Image.open(path).convert("RGB"))
    assert torch.equal(decode(path), expected)
    assert torch.equal(decode(path.read_bytes()), expected)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_grey_or_colour(mode: str, channels: int, tmp_path: Path) -> None:
    path = save(tmp_path / ("a.tif" if mode == "CMYK" else "a.png"), mode=mode)
    image = decode(path, channels)
    assert image.shape == (channels, 10, 12)
    assert image.dtype == torch.uint8
    if mode in ("1", "L", "LA"):
        assert torch.equal(image, pil_to_tensor(Image.open(path).convert("L")).expand(channels, -1, -1))


def test_sixteen_bits_keep_their_high_byte(tmp_path: Path) -> None:
    values = np.array([[0, 255, 256, 32768], [65535, 4096, 513, 1]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", 1)[0].tolist() == [[0, 0, 1, 128], [255, 16, 2, 0]]


def grey_tiff(path: Path, values: Any) -> Path:
    Image.fromarray(values).save(path)
    return path


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_32_bits_are_read_as_the_16_that_they_hold(dtype: type, tmp_path: Path) -> None:
    values = np.array([[0, 255, 256, 32768], [65535, 4096, 513, 1]])
    shallow, deep = (grey_tiff(tmp_path / f"{kind.__name__}.tif", values.astype(kind)) for kind in (np.uint16, dtype))
    assert Image.open(deep).mode == "I"
    assert torch.equal(decode(deep, 1), decode(shallow, 1))


@pytest.mark.parametrize("channels", [1, 3])
def test_floats_from_zero_to_one_are_the_eight_bits_that_they_were(channels: int, tmp_path: Path) -> None:
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    path = grey_tiff(tmp_path / "a.tif", grey.astype(np.float32) / 255)
    assert Image.open(path).mode == "F"
    assert torch.equal(decode(path, channels), torch.from_numpy(grey).expand(channels, -1, -1))


def test_images_keep_what_differs_between_them(tmp_path: Path) -> None:
    """A dark and a bright one of the same shape: by its own range each would be the same image."""
    ramp = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    dark, bright = (decode(grey_tiff(tmp_path / f"{x}.tif", x * ramp), 1) for x in (0.25, 1.0))
    assert (int(dark.max()), int(bright.max())) == (64, 255)


FLOATING, SIGNED = "floating-point pixels are read where all are within 0 and 1", "signed and 32-bit pixels"


@pytest.mark.parametrize(
    ("dtype", "values", "why"),
    [
        (
            np.float32,
            [0, 900],
            f"{FLOATING}, and these go from 0.0 to 900.0: scale all images alike, or save them with 8 or 16",
        ),
        (np.float32, [-0.1, 1], "go from -0.1 to 1.0: "),
        (np.float32, [0, 1.0000001], "go from 0.0 to 1.0000001: "),
        (np.float32, [0, math.nan], "go from nan to nan: "),
        (np.float32, [0, math.inf], "go from 0.0 to inf: "),
        (np.int32, [0, 65536], f"{SIGNED} are read where all are within 0 and 65535, and these go from 0 to 65536: scale all"),
        (np.int32, [-1024, 3071], "go from -1024 to 3071: "),
        (np.int16, [-1, 300], "go from -1 to 300: "),
        (
            np.int32,
            [0, 255],
            f"{SIGNED} keep the 8 high bits of 16, and these, of 255 at the most, have none: save them with 8",
        ),
    ],
)
def test_pixels_beyond_the_range_of_their_kind_are_refused_and_not_clipped(
    dtype: type, values: list[float], why: str, tmp_path: Path
) -> None:
    path = str(grey_tiff(tmp_path / "a.tif", np.array([values], dtype)))
    for channels in (1, 3):
        with pytest.raises(CorruptImage) as caught:
            Files([path], channels=channels)[0]
        assert why in caught.value.why


def test_a_dark_image_of_16_bits_is_dark_in_every_format(tmp_path: Path) -> None:
    """Pillow reads such a PGM file as 32-bit pixels; those of a TIFF file would be 8-bit ones that were saved with 32."""
    values = np.array([[0, 255], [17, 3]], np.uint16)
    (tmp_path / "a.pgm").write_bytes(b"P5 2 2 65535\n" + values.astype(">u2").tobytes())
    Image.fromarray(values).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.pgm") as image:
        assert image.mode == "I"
    for name in ("a.pgm", "a.png"):
        assert not decode(tmp_path / name, 1).any()


def test_a_black_image_is_black_at_any_depth(tmp_path: Path) -> None:
    for dtype in (np.uint8, np.uint16, np.int32, np.float32):
        assert not decode(grey_tiff(tmp_path / f"{dtype.__name__}.tif", np.zeros((4, 4), dtype)), 1).any()


def test_a_photograph_stands_the_way_its_camera_was_held(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise by 90 degrees to see it upright
    image = picture()
    image.save(tmp_path / "a.png", exif=exif)
    upright: Tensor = pil_to_tensor(image.transpose(Image.Transpose.ROTATE_270))
    assert torch.equal(decode(tmp_path / "a.png"), upright)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_jpeg_is_what_pillow_makes_of_it(mode: str, orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(mode=mode).save(tmp_path / "a.jpg", exif=exif, quality=90)
    with Image.open(tmp_path / "a.jpg") as image:
        expected: Tensor = pil_to_tensor(ImageOps.exif_transpose(image).convert("RGB"))
    assert torch.equal(decode(tmp_path / "a.jpg"), expected)


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    picture(mode="P").save(tmp_path / "a.png", transparency=bytes(range(256)))
    assert decode(tmp_path / "a.png").shape == (3, 10, 12)
    assert not recwarn.list


def corrupt(folder: Path) -> list[Path]:
    (folder / "text.png").write_text("not an image")
    (folder / "empty.jpg").write_bytes(b"")
    floats = folder / "floats.tif"
    Image.fromarray(np.linspace(0, 900, 16, dtype=np.float32).reshape(4, 4)).save(floats)
    half = [truncate(save(folder / f"half{extension}", size=(64, 64))) for extension in (".jpg", ".png", ".bmp", ".webp")]
    return [folder / "text.png", folder / "empty.jpg", folder / "missing.png", floats, *half]


def test_what_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    paths = corrupt(tmp_path)
    files = Files([str(path) for path in paths])
    for index, path in enumerate(paths):
        with pytest.raises(CorruptImage, match=path.name) as caught:
            files[index]
        assert caught.value.name == str(path)
        assert not caught.value.strict
        assert caught.value.described == f"{path}: {caught.value.why}"


KNOWN = "it is no image of a kind that Pillow knows"
FLOATS = (
    "floating-point pixels are read where all are within 0 and 1, and these go from 0.0 to 900.0: scale all images alike, or "
    "save them with 8 or 16 bits"
)
REASONS = {
    "text.png": KNOWN, "empty.jpg": KNOWN, "missing.png": "No such file or directory", "floats.tif": FLOATS,
    "half.png": "image file is truncated (OSError)",
}  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
def test_the_reason_is_in_words_and_the_same_at_every_try(strict: bool, tmp_path: Path) -> None:
    files = Files([str(path) for path in corrupt(tmp_path) if path.name in REASONS], strict=strict)
    for index, path in enumerate(files.paths):
        said = []
        for _ in range(2):
            with pytest.raises(CorruptImage) as caught:
                files[index]
            said.append(str(caught.value))
        assert said == [f"cannot decode the image {path}: {REASONS[Path(path).name]}"] * 2


def test_what_pillow_opens_and_cannot_convert_is_told_by_its_mode() -> None:
    with pytest.raises(
        ValueError, match="it holds pixels of Pillow's mode La, which cannot be made RGB; grey, palette and RGB"
    ):
        from_pil(Image.new("La", (4, 4)), 3)


def test_strict_files_refuse_to_pass_over_anything(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(CorruptImage, match=r"text\.png") as caught:
        Files([str(tmp_path / "text.png")], strict=True)[0]
    assert caught.value.strict


def test_the_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(CorruptImage("a.png", "truncated", strict=True)))
    assert (error.name, error.strict, str(error)) == ("a.png", True, "cannot decode the image a.png: truncated")


def test_whatever_pillow_stumbles_over_is_a_corrupt_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(save(tmp_path / "a.tif"))

    def stumble(*_: object, **__: object) -> None:
        raise TypeError("unsupported operand type(s)")  # as on a tag of the wrong type

    monkeypatch.setattr(Image, "open", stumble)
    with pytest.raises(CorruptImage, match=r"a\.tif: unsupported operand type\(s\) \(TypeError\)"):
        Files([path])[0]
    assert Files([path]).look(0) is None


def test_a_look_reads_no_more_than_the_header(tmp_path: Path) -> None:
    grey, colour = save(tmp_path / "a.png", mode="L"), save(tmp_path / "b.jpg")
    half = truncate(save(tmp_path / "c.png", size=(64, 48)))
    (tmp_path / "d.png").write_text("not an image")
    files = Files([str(path) for path in (grey, colour, half, tmp_path / "d.png")])
    assert [files.look(index) for index in range(4)] == [(10, 12, True), (10, 12, False), (48, 64, False), None]


def test_files_may_lie_in_memory() -> None:
    content = io.BytesIO()
    picture().save(content, "PNG")
    files = Files(["archive.tar:a.png"], torch.tensor([4]), contents=[content.getvalue()])
    image, label = files[0]
    assert torch.equal(image, pil_to_tensor(picture()))
    assert label == 4
