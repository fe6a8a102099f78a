"""Backbones take the images they were built for, and can be rebuilt without this library."""

import pytest
import torch
from torch import nn

from entrec.branches import Backbone, build_backbone

pytest.importorskip("timm")
pytest.importorskip("torchvision")

CASES = [
    ("tiny", 1, 28),
    ("resnet18", 3, 32),
    ("resnet18", 4, 96),
    ("resnet10t", 1, 64),  # a stem of three convolutions
    ("timm/convnext_atto", 3, 64),
    ("vit_tiny_patch16_224", 3, 32),
    ("vit_tiny_patch16_224", 1, 112),
    ("swin_s3_tiny_224", 3, 96),
    ("torchvision/resnet18", 1, 32),
    ("torchvision/resnet18", 3, 96),
    ("torchvision/mobilenet_v3_small", 2, 64),
    ("mnasnet0_5", 3, 64),  # torchvision's alone
    ("torchvision/squeezenet1_1", 3, 64),  # whose last layer is a convolution
    ("torchvision/googlenet", 1, 64),  # without its side branches
    ("torchvision/inception_v3", 3, 80),
]


def built(lines: tuple[str, ...]) -> nn.Module:
    names: dict[str, nn.Module] = {}
    exec("\n".join(lines), names)
    return names["model"]


@pytest.mark.parametrize(("name", "channels", "size"), CASES)
def test_the_lines_build_the_bare_network(name: str, channels: int, size: int) -> None:
    backbone = build_backbone(name, channels, size)
    bare = built(backbone.lines)
    bare.load_state_dict(backbone.module.state_dict(), strict=True)
    images = torch.randn(2, channels, size, size)
    features = backbone.module.eval()(images)
    assert features.shape == (2, backbone.width)
    assert not torch.equal(features[0], features[1])
    torch.testing.assert_close(bare.eval()(images), features, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "channels", "size"), CASES)
def test_trying_it_leaves_no_trace(name: str, channels: int, size: int) -> None:
    module = build_backbone(name, channels, size).module
    assert all(part.training for part in module.modules())
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.num_batches_tracked is not None
            assert part.num_batches_tracked == 0
            assert part.running_mean is not None
            assert (part.running_mean == 0).all()
    assert all(p.grad is None and p.requires_grad for p in module.parameters())


@pytest.mark.parametrize("name", ["resnet18", "torchvision/resnet18"])
def test_resnets_of_small_images_keep_their_resolution_in_the_stem(name: str) -> None:
    def stem(backbone: Backbone) -> torch.Size:
        module = backbone.module
        assert isinstance(module.conv1, nn.Module)
        assert isinstance(module.maxpool, nn.Module)
        size: torch.Size = module.maxpool(module.conv1(torch.zeros(1, 3, 64, 64))).shape
        return size

    small, large = build_backbone(name, 3, 95), build_backbone(name, 3, 96)
    assert (small.small_stem, large.small_stem) == (True, False)
    assert stem(small) == (1, 64, 64, 64)
    assert stem(large) == (1, 64, 16, 16)


def test_large_images_need_nothing_but_the_name() -> None:
    import timm

    module = timm.create_model("resnet18", num_classes=0)
    module.load_state_dict(build_backbone("resnet18", 3, 224).module.state_dict(), strict=True)


def test_origins_are_told_and_timm_comes_first() -> None:
    origins = {name: build_backbone(name, 3, 64).origin for name in ("tiny", "resnet18", "torchvision/resnet18", "mnasnet0_5")}
    assert origins == {
        "tiny": "entrec",
        "resnet18": "timm",
        "torchvision/resnet18": "torchvision",
        "mnasnet0_5": "torchvision",
    }


@pytest.mark.parametrize(("size", "crops"), [(32, (16, 32, 48)), (224, (96, 224))])
def test_a_vit_takes_crops_of_several_sizes(size: int, crops: tuple[int, ...]) -> None:
    backbone = build_backbone("vit_tiny_patch16_224", 3, size)
    for crop in crops:
        assert backbone.module(torch.randn(2, 3, crop, crop)).shape == (2, backbone.width)


def test_images_that_patches_do_not_fill_are_refused_with_sizes_that_they_do() -> None:
    with pytest.raises(ValueError, match="patches are 14 pixels wide: choose an image size of 28 or 42"):
        build_backbone("vit_small_patch14_dinov2", 3, 32)
    with pytest.raises(ValueError, match="patches are 16 pixels wide: choose an image size of 16,"):
        build_backbone("vit_tiny_patch16_224", 3, 8)


def test_images_too_small_for_a_network_are_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"backbone 'convnext_atto' does not take images of 3 x 16 x 16: .*'tiny'"):
        build_backbone("convnext_atto", 3, 16)


def test_an_unknown_name_is_told_its_nearest() -> None:
    with pytest.raises(ValueError, match=r"no backbone 'rsenet18'; the nearest names are resnet18"):
        build_backbone("rsenet18")
    with pytest.raises(ValueError, match=r"no backbone 'tinny'; the nearest names are .*\btiny\b"):
        build_backbone("tinny")
    with pytest.raises(ValueError, match=r"no backbone 'torchvision/resnet81'; the nearest names are resnet18"):
        build_backbone("torchvision/resnet81")
    with pytest.raises(ValueError, match=r"no backbone 'timm/mnasnet0_5'"):
        build_backbone("timm/mnasnet0_5")
    with pytest.raises(ValueError, match=r"got 'hub/resnet18'"):
        build_backbone("hub/resnet18")


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="image_size must be at least 8, got 4"):
        build_backbone("tiny", 3, 4)
    with pytest.raises(ValueError, match="channels must be at least 1, got 0"):
        build_backbone("tiny", 0)
