"""Images in files: every format against Pillow, and what is not an image."""

import io
import pickle
from pathlib import Path

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
    Image.fromarray(np.zeros((4, 4), dtype=np.float32)).save(floats)
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
FLOATS = "it holds floating-point pixels without a known range; images of 8 or 16 bits per channel are wanted"
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
