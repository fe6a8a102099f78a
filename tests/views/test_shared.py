"""A view that others are cases of makes what each of them makes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator

from entrec.compiling import allow_compiling
from entrec.data import Held, Source
from entrec.training.feed import Feed
from entrec.views import Augment, Crop, Look, Recipe, View, recipe
from entrec.views.ops import numbers_of_look
from entrec.views.shared import shared

K = 64
CPU = torch.device("cpu")


def augment_of(name: Any, channels: int, size: int = 32) -> Augment:
    return Augment(recipe(name, size, small_crops=2 if name == "dino" else 0), [0.4] * channels, [0.25] * channels)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "size"), [("byol", 32), ("dino", 32), ("byol", 64), ("dino", 64)])
def test_its_views_are_those_that_were_asked_for(name: str, size: int, channels: int) -> None:
    augment = augment_of(name, channels, size)
    views = augment.recipe.views
    images = torch.randint(0, 256, (K, channels, size + 8, size + 4), dtype=torch.uint8)
    cases = shared(views, channels, False, CPU)
    assert cases[0] is not None
    assert cases[1] is not None
    assert cases[0].view is cases[1].view
    for view, case, own in zip(views, cases, augment.draw(K, Generator().manual_seed(0)), strict=True):
        if case is not None:
            assert torch.equal(augment.view(case.view, images, case.numbers(own)), augment.view(view, images, own))


@pytest.mark.parametrize("channels", [1, 3])
def test_crops_that_were_cut_before_too(channels: int) -> None:
    augment = augment_of("byol", channels)
    crops = torch.randint(0, 256, (K, channels, 32, 32), dtype=torch.uint8)
    for v, case in enumerate(shared(augment.recipe.views, channels, True, CPU)):
        assert case is not None
        (own,) = (
            augment.draw_looks(1, K, Generator().manual_seed(v))
            if v == 0
            else (torch.rand(numbers_of_look(augment.of(v).look, channels), K),)
        )
        assert torch.equal(augment.look(case.view, crops, case.numbers(own)), augment.look(augment.of(v), crops, own))


def test_views_that_are_alike_or_of_another_kind_stay_alone() -> None:
    one, other = recipe("byol", 32).views
    assert shared(recipe("simclr", 32).views, 3, False, CPU) == (None, None)
    wider = replace(other, crop=replace(other.crop, size=24))
    assert shared((one, wider), 3, False, CPU) == (None, None)
    blurred = replace(other, look=replace(other.look, blur=0.1))
    assert shared((one, blurred), 3, False, CPU) == (None, None)  # which would be a blur for nothing


@pytest.mark.slow
def test_two_of_them_are_compiled_once() -> None:
    allow_compiling()
    augment = augment_of("byol", 3)
    held = Held(torch.randint(0, 256, (32, 3, 32, 32), dtype=torch.uint8), None)
    source = Source("noise", held, None, (), 3, 32, (0.4,) * 3, (0.25,) * 3, backbone="tiny")
    feed = Feed(source, augment, 16, 0, CPU)
    places = torch.arange(16)
    plain = feed.views((), places, Generator().manual_seed(0))
    feed.compile()
    torch._dynamo.utils.counters.clear()
    compiled = feed.views((), places, Generator().manual_seed(0))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for a, b in zip(plain, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_view_that_takes_no_numbers_can_be_one_of_them() -> None:
    views = tuple(View(Crop(8, scale=None), Look(flip=p)) for p in (0.5, 0.0))
    augment = Augment(Recipe(views, 2), [0.4] * 3, [0.25] * 3)
    images = torch.randint(0, 256, (K, 3, 8, 8), dtype=torch.uint8)
    for view, case, own in zip(views, shared(views, 3, False, CPU), augment.draw(K, Generator()), strict=True):
        assert case is not None
        assert torch.equal(augment.view(case.view, images, case.numbers(own)), augment.view(view, images, own))


def test_a_recipe_of_one_view_has_none_to_share_with() -> None:
    assert shared(Recipe(recipe("byol", 32).views[:1], 1).views, 3, False, CPU) == (None,)
