import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from entrec.branches import build_backbone
from entrec.branches.backbones import Backbone
from entrec.data import Files
from entrec.data.files import UnusableImage, decode, from_pil
from entrec.evaluation import Exported, export_encoder, extract
from entrec.evaluation import export as exporting
from entrec.evaluation.transform import check_transform, transform_lines
from entrec.views import Augment, recipe
from entrec.views.augment import Plain

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def trained(backbone: Backbone) -> nn.Module:
    """The backbone with buffers that are not the ones it was born with."""
    module = backbone.module.train()
    with torch.no_grad():
        module(torch.randn(4, *IMAGES.shape[1:]))
    return module


def export(backbone: Backbone, name: str, path: Path, **others: Any) -> Exported:
    how: dict[str, Any] = {
        "module": backbone.module,
        "channels": 3,
        "image_size": 32,
        "mean": MEAN,
        "std": STD,
        "small_stem": backbone.small_stem,
        "lines": backbone.lines,
        "who": "student",
        "reference_images": IMAGES,
    }
    how |= others
    return export_encoder(how.pop("module"), name, backbone.origin, path, **how)


def features(lines: tuple[str, ...], images: Tensor) -> Tensor:
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    with torch.no_grad():
        found: Tensor = names["model"](images)
    return found


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("name", ["tiny", "resnet10t", "torchvision/resnet18", "test_vit", "torchvision/squeezenet1_1"])
def test_its_lines_give_its_features(name: str, suffix: str, tmp_path: Path) -> None:
    backbone = build_backbone(name)
    module = trained(backbone)
    exported = export(backbone, name, tmp_path / f"encoder{suffix}")
    assert module.training
    torch.testing.assert_close(features(exported.lines, IMAGES), module.eval()(IMAGES).detach(), rtol=1e-5, atol=1e-6)
    assert [file.name for file in tmp_path.iterdir()] == [f"encoder{suffix}"]


def test_timm_loads_it_in_its_own_words(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    backbone = build_backbone("resnet10t", image_size=96)
    exported = export(backbone, "resnet10t", tmp_path / "encoder.safetensors", image_size=96, who="teacher")
    assert not backbone.small_stem
    model = timm.create_model("resnet10t", num_classes=0, in_chans=3)
    model.load_state_dict(load_file(exported.path), strict=True)
    assert set(exported.keys) == set(model.state_dict())
    assert exported.note == ""
    assert exported.who == "teacher"
    with safetensors.safe_open(exported.path, "pt") as file:
        facts = file.metadata()
    assert facts["backbone"] == "resnet10t"
    assert facts["who"] == "teacher"
    assert facts["entrec"]
    assert json.loads(facts["mean"]) == MEAN
    assert json.loads(facts["std"]) == STD
    assert facts["image_size"] == "96"
    assert facts["view"] == plain(96).rule


def test_torchvision_loads_it_in_its_own_words(tmp_path: Path) -> None:
    models = pytest.importorskip("torchvision.models")
    backbone = build_backbone("torchvision/resnet18", image_size=96)
    exported = export(backbone, "torchvision/resnet18", tmp_path / "encoder.pth", image_size=96)
    model = models.get_model("resnet18")
    weights = torch.load(exported.path, weights_only=True)
    model.load_state_dict(weights, strict=True)
    assert (model.fc.weight == 0).all()
    assert (model.fc.bias == 0).all()
    assert "fc.weight and fc.bias are zeros" in exported.note
    model.fc = nn.Identity()
    torch.testing.assert_close(model.eval()(IMAGES), backbone.module.eval()(IMAGES))


def test_a_network_made_by_hand_whose_head_is_in_a_sequence(tmp_path: Path) -> None:
    models = pytest.importorskip("torchvision.models")
    model = models.get_model("mobilenet_v3_small")
    model.classifier[3] = nn.Identity()
    lines = ("from torch import nn", "from torchvision import models", 'model = models.get_model("mobilenet_v3_small")')
    backbone = Backbone(model, 1024, "torchvision", False, (*lines, "model.classifier[3] = nn.Identity()"))
    exported = export(backbone, "mobilenet_v3_small", tmp_path / "encoder.safetensors")
    models.get_model("mobilenet_v3_small").load_state_dict(load_file(exported.path), strict=True)
    torch.testing.assert_close(features(exported.lines, IMAGES), model.eval()(IMAGES).detach())


@pytest.mark.parametrize("name", ["resnet10t", "torchvision/resnet18"])
def test_a_small_stem_is_said_and_built(name: str, tmp_path: Path) -> None:
    backbone = build_backbone(name)
    assert backbone.small_stem
    exported = export(backbone, name, tmp_path / "encoder.safetensors")
    assert "The stem is one for images of 32 pixels" in exported.note
    assert any(line.startswith("model.conv1, model.maxpool = ") for line in exported.lines)


def test_other_channels(tmp_path: Path) -> None:
    backbone = build_backbone("torchvision/resnet18", channels=5, image_size=96)
    images = torch.randn(2, 5, 96, 96)
    exported = export(
        backbone, "torchvision/resnet18", tmp_path / "encoder.pt", channels=5, image_size=96, reference_images=images,
        mean=[0.5] * 5, std=[0.2] * 5,
    )  # fmt: skip
    torch.testing.assert_close(features(exported.lines, images), backbone.module.eval()(images).detach())


def test_tied_and_transposed_tensors(tmp_path: Path) -> None:
    backbone = build_backbone("tiny")
    for p in backbone.module.parameters():
        if p.ndim == 4:
            p.data = p.data.to(memory_format=torch.channels_last)
    norms = [part for part in backbone.module.modules() if isinstance(part, nn.BatchNorm2d)]
    same = next((a, b) for a in norms for b in norms if a is not b and a.num_features == b.num_features)
    same[0].weight = same[1].weight
    exported = export(backbone, "tiny", tmp_path / "encoder.safetensors")
    assert set(load_file(exported.path)) == set(backbone.module.state_dict())


def test_wrappers_are_taken_off(tmp_path: Path) -> None:
    backbone = build_backbone("tiny")
    exported = export(
        backbone, "tiny", tmp_path / "encoder.safetensors", module=torch.compile(backbone.module, backend="eager")
    )
    assert set(exported.keys) == set(backbone.module.state_dict())


def other_lines(backbone: Backbone) -> tuple[str, ...]:
    return (*backbone.lines, "model.register_forward_hook(lambda module, images, features: features * 1.001)")


WRONG: dict[str, tuple[Callable[[Backbone], dict[str, Any]], type[Exception], str]] = {
    "other features": (lambda b: {"lines": other_lines(b)}, ValueError, "features differ from the module's by up to"),
    "other network": (lambda b: {"lines": build_backbone("resnet10t").lines}, RuntimeError, "Missing key"),
    "no network": (lambda b: {"lines": ("import torch",)}, ValueError, "lines must build the encoder as `model = ...`"),
    "NaN": (
        lambda b: {"reference_images": IMAGES * float("nan")},
        ValueError,
        "3 of the 3 rows of features are NaN or infinite",
    ),
    "levels": (lambda b: {"mean": [0.5], "std": [0.2]}, ValueError, r"a number for each of 3 channels, got \[0.5\]"),
    "who": (lambda b: {"who": "both"}, ValueError, "who must be one of 'student', 'teacher', got 'both'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_check_out_leaves_no_file(case: str, tmp_path: Path) -> None:
    backbone = build_backbone("tiny")
    arguments, error, words = WRONG[case]
    with pytest.raises(error, match=words):
        export(backbone, "tiny", tmp_path / "encoder.safetensors", **arguments(backbone))
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_stays_until_a_good_one_replaces_it(tmp_path: Path) -> None:
    backbone, path = build_backbone("tiny"), tmp_path / "deep" / "encoder.safetensors"
    export(backbone, "tiny", path)
    old = path.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export(backbone, "tiny", path)
    with pytest.raises(ValueError, match="features differ"):
        export(backbone, "tiny", path, overwrite=True, lines=other_lines(backbone))
    assert path.read_bytes() == old
    new = build_backbone("tiny")
    export(new, "tiny", path, overwrite=True)
    assert path.read_bytes() != old


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.safetensors, \.pth or \.pt, got '.*encoder\.onnx'"):
        export(build_backbone("tiny"), "tiny", tmp_path / "encoder.onnx")


def test_random_numbers_and_buffers_are_left_alone(tmp_path: Path) -> None:
    backbone = build_backbone("tiny")
    before = {name: x.clone() for name, x in trained(backbone).state_dict().items()}
    state = torch.random.get_rng_state()
    export(backbone, "tiny", tmp_path / "encoder.safetensors")
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(x, backbone.module.state_dict()[name]) for name, x in before.items())


def transformed(lines: tuple[str, ...], image: Any) -> Tensor:
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    found: Tensor = names["transform"](image)
    return found


def plain(size: int, mean: list[float] = MEAN, std: list[float] = STD) -> Plain:
    return Plain(Augment(recipe("none", size, 1), mean, std), size)


@pytest.mark.parametrize("size", [32, 95, 96, 224])
@pytest.mark.parametrize("shape", [(40, 57), (300, 111), (96, 96), (224, 224)])
def test_its_lines_prepare_an_image_as_evaluation_does(size: int, shape: tuple[int, int]) -> None:
    image = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    wanted = plain(size)(image[None])[0]
    for given in (image, Image.fromarray(image.permute(1, 2, 0).numpy())):
        found = transformed(transform_lines(MEAN, STD, size), given)
        assert type(found) is Tensor
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def pictures(folder: Path) -> dict[str, Path]:
    """Files of every kind that is decoded otherwise than its pixels stand."""
    colours = Image.fromarray(torch.randint(0, 256, (40, 57, 3), dtype=torch.uint8).numpy())
    kinds = {
        mode: folder / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}" for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK")
    }
    for mode, path in kinds.items():
        colours.convert(mode).save(path)
    kinds |= {name: folder / name for name in ("clear.png", "16 bits.png", "32 bits.tif", "floats.tif")}
    kinds |= {name: folder / name for name in ("turned.jpg", "grey.jpg")}
    colours.convert("P").save(kinds["clear.png"], transparency=bytes(range(256)))
    deep = torch.randint(0, 65536, (40, 57)).numpy()
    Image.fromarray(deep.astype(np.uint16)).save(kinds["16 bits.png"])
    Image.fromarray(deep.astype(np.int32)).save(kinds["32 bits.tif"])
    Image.fromarray((deep / 65535).astype(np.float32)).save(kinds["floats.tif"])
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise by 90 degrees to see it upright
    colours.save(kinds["turned.jpg"], exif=exif)
    colours.convert("L").save(kinds["grey.jpg"])
    return kinds


@pytest.mark.parametrize("channels", [1, 3])
def test_its_lines_convert_a_picture_as_a_file_is_decoded(channels: int, tmp_path: Path) -> None:
    mean, std = MEAN[:channels], STD[:channels]
    lines, prepare = transform_lines(mean, std, 32), plain(32, mean, std)
    for kind, path in pictures(tmp_path).items():
        with Image.open(path) as image:
            found = transformed(lines, image)
        torch.testing.assert_close(found, prepare(decode(path, channels)[None])[0], rtol=0, atol=1e-4, msg=kind)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_exported_encoder_gives_pictures_the_features_that_ours_does(channels: int, tmp_path: Path) -> None:
    backbone, mean, std = build_backbone("tiny", channels), MEAN[:channels], STD[:channels]
    images = torch.randn(2, channels, 32, 32)
    exported = export(
        backbone, "tiny", tmp_path / "encoder.pth", channels=channels, mean=mean, std=std, reference_images=images
    )  # fmt: skip
    paths = list(pictures(tmp_path).values())
    wanted = extract(backbone.module, Files([str(path) for path in paths], channels=channels), plain(32, mean, std)).values
    prepared = torch.stack([transformed(exported.transform, Image.open(path)) for path in paths])
    torch.testing.assert_close(features(exported.lines, prepared), wanted, rtol=1e-3, atol=1e-4)


def test_its_lines_take_grey_tensors_for_colour() -> None:
    grey, lines = torch.randint(0, 256, (1, 40, 57), dtype=torch.uint8), transform_lines(MEAN, STD, 32)
    torch.testing.assert_close(transformed(lines, grey), transformed(lines, Image.fromarray(grey[0].numpy())))


@pytest.mark.parametrize(
    ("dtype", "values", "told"),
    [
        (np.float32, [0, 2], "mode F must be within 0 and 1, got 0.0 to 2.0"),
        (np.float32, [0, float("nan")], "got nan to nan"),
        (np.int32, [0, 65536], "mode I must be within 0 and 65535, not all below 256, got 0 to 65536"),
        (np.int32, [-1, 300], "got -1 to 300"),
        (np.int32, [0, 255], "got 0 to 255"),
    ],
)
def test_its_lines_refuse_the_pixels_that_are_refused_in_training(dtype: type, values: list[float], told: str) -> None:
    image = Image.fromarray(np.array([values], dtype))
    with pytest.raises(UnusableImage):
        from_pil(image, 3)
    with pytest.raises(ValueError, match=told):
        transformed(transform_lines(MEAN, STD, 32), image)


def test_its_lines_take_dark_images_of_16_bits_as_training_does(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P5 2 1 65535\n" + np.array([17, 255], ">u2").tobytes())
    with Image.open(tmp_path / "a.pgm") as image:
        found = transformed(transform_lines(MEAN, STD, 32), image)
    torch.testing.assert_close(found, plain(32)(decode(tmp_path / "a.pgm")[None])[0])


def test_the_lines_that_prepare_an_image_come_with_the_export(tmp_path: Path) -> None:
    exported = export(build_backbone("tiny"), "tiny", tmp_path / "encoder.pth")
    assert exported.transform == transform_lines(MEAN, STD, 32)


def other_crop(mean: list[float], std: list[float], size: int) -> tuple[str, ...]:
    larger = (line.replace("(32, 32)", "(33, 33)") for line in transform_lines(mean, std, size))
    return (*larger, "whole = transform", "transform = lambda image: whole(image)[:, 1:, 1:]")


def test_lines_that_prepare_images_otherwise_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "transform_lines", other_crop)
    with pytest.raises(ValueError, match=r"differ from the evaluation view by 0\.\d+ of the pixel range"):
        export(build_backbone("tiny"), "tiny", tmp_path / "encoder.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [32, 96])
def test_a_wrong_mean_a_wrong_size_and_eight_bits_on_the_way_are_found(size: int) -> None:
    lines = transform_lines(MEAN, STD, size)
    check_transform(lines, plain(size), STD)
    rounded = tuple(line.replace("v2.ToDtype(torch.float32, scale=True), view,", "view, v2.ToDtype(torch.float32, scale=True),")
                    for line in lines)  # fmt: skip
    for wrong in (transform_lines([0.4, 0.5, 0.61], STD, size), rounded):
        with pytest.raises(ValueError, match="differ from the evaluation view"):
            check_transform(wrong, plain(size), STD)


def test_an_image_of_the_views_size_is_neither_resized_nor_cut() -> None:
    always = tuple(line.replace("image if image.shape[-2:] == (96, 96) else ", "") for line in transform_lines(MEAN, STD, 96))
    with pytest.raises(ValueError, match="for an image of 96 x 96 pixels"):
        check_transform(always, plain(96), STD)
