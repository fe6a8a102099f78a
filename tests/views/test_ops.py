"""Random changes: how often, how independent, and from which generator."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from entrec.views import blur, colour_jitter, flip, grey, normalise, random_resized_crop, recipe, solarise
from entrec.views.recipe import Crop, Look

Op = Callable[[Tensor, float, Generator], Tensor]


def jitter(x: Tensor, p: float, generator: Generator) -> Tensor:
    look = Look(jitter=p, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2)
    return colour_jitter(x, look, generator)


def blurred(x: Tensor, p: float, generator: Generator) -> Tensor:
    return blur(x, p, (0.5, 2.0), 5, generator)


OPS: list[Op] = [flip, jitter, grey, blurred, solarise]


def changed(x: Tensor, out: Tensor) -> Tensor:
    return (out - x).abs().amax(dim=(1, 2, 3)) > 1e-4


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("p", [0.0, 0.2, 0.8, 1.0])
def test_a_change_happens_as_often_as_it_should(op: Op, p: float) -> None:
    x = torch.rand(2000, 3, 6, 6)
    share = float(changed(x, op(x, p, Generator().manual_seed(0))).float().mean())
    assert abs(share - p) <= 4 * (p * (1 - p) / 2000) ** 0.5


@pytest.mark.parametrize("op", OPS)
def test_values_stay_in_0_to_1(op: Op) -> None:
    x = torch.rand(100, 3, 8, 8).round()
    out = op(x, 0.7, Generator().manual_seed(0))
    assert float(out.min()) >= -1e-6
    assert float(out.max()) <= 1 + 1e-6


def test_cubic_crops_stay_in_0_to_1() -> None:
    x = torch.rand(100, 3, 8, 8).round()
    out = random_resized_crop(x, Crop(16, filter="bicubic"), Generator().manual_seed(0))
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1


@pytest.mark.parametrize("shape", [(30, 31), (31, 30), (16, 16), (9, 40)])
def test_a_crop_without_scale_is_the_centred_square(shape: tuple[int, int]) -> None:
    x = torch.rand(4, 3, *shape)
    side = min(shape)
    top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
    out = random_resized_crop(x, Crop(side, scale=None), Generator())
    torch.testing.assert_close(out, x[..., top : top + side, left : left + side])


@pytest.mark.parametrize("op", OPS)
def test_the_input_is_left_alone(op: Op) -> None:
    x = torch.rand(10, 3, 8, 8)
    before = x.clone()
    op(x, 0.5, Generator().manual_seed(0))
    assert torch.equal(x, before)


@pytest.mark.parametrize("op", OPS)
def test_batches_may_be_empty(op: Op) -> None:
    assert op(torch.empty(0, 3, 8, 8), 0.5, Generator()).shape == (0, 3, 8, 8)
    assert random_resized_crop(torch.empty(0, 3, 8, 8), recipe("moco", 6).views[0].crop, Generator()).shape == (0, 3, 6, 6)


def test_normalise_is_its_formula() -> None:
    x, mean, std = torch.rand(2, 3, 4, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 4.0])
    for channel in range(3):
        torch.testing.assert_close(normalise(x, mean, std)[:, channel], (x[:, channel] - mean[channel]) / std[channel])
