"""Crops, resizes, blurs and mirror images of each sample against torchvision's, one image at a time."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from entrec.views.draws import Boxes, crop_boxes
from entrec.views.geometry import crop_and_resize, gaussian_blur, mirrored
from entrec.views.recipe import Filter


def images(k: int, height: int = 37, width: int = 29, channels: int = 3) -> Tensor:
    return torch.rand(k, channels, height, width)


def boxes(rows: list[tuple[int, int, int, int]]) -> Boxes:
    return Boxes(*torch.tensor(rows, dtype=torch.float32).unbind(dim=1))


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [1, 5, 14, 31, 64])
def test_a_resize_of_each_crop_is_torchvisions(kind: Filter, size: int) -> None:
    x = images(20)
    rows = [(3 * i % 9, 5 * i % 7, 1 + 7 * i % 28, 1 + 11 * i % 22) for i in range(19)] + [(0, 0, 37, 29)]
    how = InterpolationMode(kind)
    theirs = [
        functional.resized_crop(image, *row, [size, size], interpolation=how, antialias=True)
        for image, row in zip(x, rows, strict=True)
    ]
    torch.testing.assert_close(crop_and_resize(x, boxes(rows), size, kind), torch.stack(theirs).clamp(0, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_a_whole_image_at_its_own_size_stays_as_it_is(kind: Filter) -> None:
    x = images(3, 16, 16)
    assert torch.equal(crop_and_resize(x, boxes([(0, 0, 16, 16)] * 3), 16, kind), x)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_a_resize_keeps_constant_images_and_any_number_of_channels(kind: Filter) -> None:
    x = torch.full((50, 5, 23, 31), 0.3)
    drawn = crop_boxes(50, 23, 31, (0.05, 1.0), (0.5, 2.0), torch.Generator().manual_seed(0))
    torch.testing.assert_close(crop_and_resize(x, drawn, 12, kind), torch.full((50, 5, 12, 12), 0.3))


def test_a_crop_sees_nothing_outside_its_box() -> None:
    x = images(1, 20, 20)
    outside = torch.ones(20, 20, dtype=torch.bool)
    outside[4:13, 6:17] = False
    box = boxes([(4, 6, 9, 11)])
    assert torch.equal(crop_and_resize(x, box, 7), crop_and_resize(x.masked_fill(outside, 1e6), box, 7))


@pytest.mark.parametrize("kernel", [1, 3, 9, 23])
def test_a_blur_of_each_width_is_torchvisions(kernel: int) -> None:
    x, sigma = images(12), torch.linspace(0.1, 2, 12)
    theirs = [functional.gaussian_blur(image, kernel, [float(width)]) for image, width in zip(x, sigma, strict=True)]
    blurred = gaussian_blur(x, sigma, kernel, torch.ones(12, dtype=torch.bool))
    torch.testing.assert_close(blurred, torch.stack(theirs), atol=1e-5, rtol=0)


def test_a_blur_whose_kernel_spans_the_image_reflects_at_both_ends() -> None:
    x = images(1, 12, 12)
    blurred = gaussian_blur(x, torch.tensor([3.0]), 23, torch.tensor([True]))
    torch.testing.assert_close(blurred, functional.gaussian_blur(x, 23, [3.0]), atol=1e-5, rtol=0)


def test_samples_without_a_blur_stay_exactly_as_they_are() -> None:
    x = images(2)
    blurred = gaussian_blur(x, torch.tensor([1.0, 1.0]), 9, torch.tensor([False, True]))
    assert torch.equal(blurred[0], x[0])
    assert not torch.equal(blurred[1], x[1])


def test_mirror_images_go_left_to_right() -> None:
    x = images(2)
    out = mirrored(x, torch.tensor([True, False]))
    assert torch.equal(out[0], functional.horizontal_flip(x[0]))
    assert torch.equal(out[1], x[1])
