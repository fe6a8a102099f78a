"""Changes of colour of each sample against torchvision's, one image at a time."""

from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from entrec.views.colour import blend, jittered, luma, shift_hue, solarised
from entrec.views.draws import Jitter, jitter_factors

CHANGES: list[Callable[[Tensor, float], Tensor]] = [
    functional.adjust_brightness,
    functional.adjust_contrast,
    functional.adjust_saturation,
    functional.adjust_hue,
]


def assert_close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def colours(k: int) -> Tensor:
    """Random images, and among them the corners: grey, black, white, and ties between the channels."""
    x = torch.rand(k, 3, 13, 11)
    x[0] = x[0, :1]
    x[1], x[2] = 0, 1
    x[3] = (2 * x[3]).round() / 2
    return x


def one_by_one(x: Tensor, jitter: Jitter) -> Tensor:
    """Torchvision's changes, each image in its own order."""
    out = []
    for i, image in enumerate(x):
        for change in jitter.position[i].argsort().tolist():
            image = CHANGES[change](image, float(jitter[change][i]))
        out.append(image)
    return torch.stack(out)


def only(change: int, factors: Tensor) -> Jitter:
    """One of the four changes by itself."""
    k = len(factors)
    values = [torch.ones(k), torch.ones(k), torch.ones(k), torch.zeros(k)]
    values[change] = factors
    return Jitter(values[0], values[1], values[2], values[3], torch.arange(4).expand(k, 4))


@pytest.mark.parametrize("change", range(3))
def test_brightness_contrast_and_saturation_are_torchvisions(change: int) -> None:
    x, factors = colours(20), torch.linspace(0, 2, 20)
    theirs = torch.stack([CHANGES[change](image, float(f)) for image, f in zip(x, factors, strict=True)])
    assert_close(jittered(x, only(change, factors)), theirs)


def test_hue_is_torchvisions() -> None:
    x, turns = colours(41), torch.linspace(-0.5, 0.5, 41)
    theirs = torch.stack([functional.adjust_hue(image, float(t)) for image, t in zip(x, turns, strict=True)])
    assert_close(shift_hue(x, turns), theirs)


def test_hue_goes_round_a_circle() -> None:
    primary = torch.eye(3)[:, :, None, None]
    third = torch.full((3,), 1 / 3)
    assert_close(shift_hue(primary, third), primary.roll(-1, dims=0))  # red to green to blue to red
    x = colours(8)
    assert_close(shift_hue(x, torch.full((8,), 1.0)), x)


def test_all_orders_of_the_four_changes_are_torchvisions() -> None:
    orders = torch.tensor(list(permutations(range(4))))
    x = colours(len(orders))
    jitter = jitter_factors(len(orders), 0.8, 0.8, 0.8, 0.2, torch.Generator().manual_seed(0))._replace(position=orders)
    assert_close(jittered(x, jitter), one_by_one(x, jitter))


def test_the_order_matters() -> None:
    orders = torch.tensor(list(permutations(range(4))))
    brightness, contrast, saturation, hue = torch.tensor([1.6, 0.4, 1.7, 0.2])[:, None].expand(4, 24)
    jitter = Jitter(brightness, contrast, saturation, hue, orders)
    out = jittered(torch.rand(1, 3, 9, 9).expand(24, 3, 9, 9), jitter)
    assert len(torch.unique(out.flatten(1), dim=0)) > 12  # some neighbours commute


@pytest.mark.parametrize("channels", [1, 4, 13])
def test_other_numbers_of_channels_have_brightness_and_contrast(channels: int) -> None:
    x = torch.rand(24, channels, 9, 9)
    orders = torch.tensor(list(permutations(range(4))))
    jitter = jitter_factors(24, 0.8, 0.8, 0.8, 0.2, torch.Generator().manual_seed(0))._replace(position=orders)
    expected = []
    for i, image in enumerate(x):
        for change in orders[i].argsort().tolist():
            if change == 0:
                image = (image * jitter.brightness[i]).clamp(0, 1)
            if change == 1:
                image = (image * jitter.contrast[i] + (1 - jitter.contrast[i]) * image.mean()).clamp(0, 1)
        expected.append(image)
    assert_close(jittered(x, jitter), torch.stack(expected))
    if channels == 1:
        assert_close(jittered(x, jitter), one_by_one(x, jitter))


def test_grey_is_torchvisions() -> None:
    x = colours(6)
    zero, one = torch.zeros(6), torch.ones(6)
    assert_close(luma(x), functional.rgb_to_grayscale(x))
    assert_close(blend(x, zero, one, zero), functional.rgb_to_grayscale(x, 3))
    assert torch.equal(blend(x, one, zero, zero), x)


def test_solarise_inverts_what_pillow_inverts() -> None:
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    theirs = functional.solarize(levels, 128).float() / 255
    out = solarised((levels.float() / 255).repeat(2, 1, 1, 1), torch.tensor([True, False]))
    assert_close(out, torch.cat([theirs, levels.float() / 255]))
