"""Recipes: the published numbers, the shapes of their views, and what is refused."""

from dataclasses import asdict, replace
from typing import Any, get_args

import pytest

from entrec.views import Crop, Look, Recipe, RecipeName, View, recipe

NAMES = get_args(RecipeName)

# From the papers and the code of their authors, at 224 pixels: area, jitter, blur and solarise of the first two views.
PUBLISHED: dict[RecipeName, tuple[tuple[float, float], tuple[float, ...], tuple[float, float], tuple[float, float]]] = {
    "simclr": ((0.08, 1.0), (0.8, 0.8, 0.8, 0.2), (0.5, 0.5), (0.0, 0.0)),
    "byol": ((0.08, 1.0), (0.4, 0.4, 0.2, 0.1), (1.0, 0.1), (0.0, 0.2)),
    "moco": ((0.2, 1.0), (0.4, 0.4, 0.4, 0.1), (0.5, 0.5), (0.0, 0.0)),
    "swav": ((0.14, 1.0), (0.8, 0.8, 0.8, 0.2), (0.5, 0.5), (0.0, 0.0)),
    "dino": ((0.4, 1.0), (0.4, 0.4, 0.2, 0.1), (1.0, 0.1), (0.0, 0.2)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_have_the_published_parameters(name: RecipeName) -> None:
    scale, jitter, blur, solarise = PUBLISHED[name]
    for v, view in enumerate(recipe(name, 224, small_crops=6).views[:2]):
        look = view.look
        assert view.crop.scale == scale
        assert view.crop.ratio == (3 / 4, 4 / 3)
        assert (look.brightness, look.contrast, look.saturation, look.hue) == pytest.approx(jitter)
        assert (look.flip, look.jitter, look.grey, look.sigma, look.kernel) == (0.5, 0.8, 0.2, (0.1, 2.0), 23)
        assert (look.blur, look.solarise) == (blur[v], solarise[v])


def test_small_crops_have_the_published_parameters() -> None:
    for name, scale in (("swav", (0.05, 0.14)), ("dino", (0.05, 0.4))):
        views = recipe(name, 224, small_crops=3)  # type: ignore[arg-type]
        assert views.full == 2
        assert [view.crop.size for view in views.views] == [224, 224, 96, 96, 96]
        for view in views.views[2:]:
            assert view.crop.scale == scale
            assert (view.look.blur, view.look.solarise, view.look.kernel) == (0.5, 0.0, 9)


def test_dino_without_small_crops_takes_wider_ones() -> None:
    assert recipe("dino", 224).views[0].crop.scale == (0.14, 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 28, 32, 63, 64, 224])
def test_views_of_any_size_and_number(name: RecipeName, size: int) -> None:
    made = recipe(name, size, views=5, small_crops=2)
    assert (made.full, len(made.views)) == (5, 7)
    assert [view.crop.size for view in made.views] == [size] * 5 + [max(1, round(size * 96 / 224))] * 2
    assert made.views[0] == made.views[2] == made.views[4]
    assert made.views[1] == made.views[3]
    assert (made.views[0] != made.views[1]) == (name in ("byol", "dino"))


@pytest.mark.parametrize("name", NAMES)
def test_small_images_are_not_blurred_and_keep_a_fifth_of_their_area(name: RecipeName) -> None:
    for view in recipe(name, 32).views:
        assert view.look.blur == 0
        assert view.crop.scale is None or view.crop.scale[0] >= 0.2
    assert recipe("simclr", 32).views[0].look.brightness == 0.4


def test_none_has_no_chance_in_it() -> None:
    for view in recipe("none", 32, small_crops=1).views:
        assert view.crop.scale is None
        assert view.look == Look(kernel=view.look.kernel)


def test_a_small_size_can_be_given() -> None:
    assert recipe("swav", 32, small_crops=1, small_size=20).views[-1].crop.size == 20


def test_an_unknown_recipe_is_told_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"got 'simlcr'; did you mean 'simclr'\?"):
        recipe("simlcr", 32)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be one of 'simclr', .*got 'qqqq'$"):
        recipe("qqqq", 32)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"views": 0}, "views must be at least 1, got 0"),
        ({"small_crops": -1}, "small_crops must be at least 0, got -1"),
        ({"small_size": 0}, "small_size must be at least 1, got 0"),
    ],
)
def test_bad_numbers_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**{"name": "moco", "size": 32, **arguments})


@pytest.mark.parametrize("name", ["flip", "jitter", "grey", "blur", "solarise"])
@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_probabilities_lie_in_0_to_1(name: str, p: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} is a probability and must lie in 0..1, got"):
        replace(Look(), **{name: p})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "arguments", "message"),
    [
        (Look, {"brightness": -1.0}, "brightness must be at least 0"),
        (Look, {"hue": 0.6}, "hue must lie in 0..0.5, got 0.6"),
        (Look, {"sigma": (0.0, 2.0)}, r"sigma must be \(low, high\)"),
        (Look, {"kernel": 4}, "kernel must be an odd number of taps, got 4"),
        (Crop, {"size": 0}, "size of a crop must be at least 1"),
        (Crop, {"size": 8, "scale": (0.5, 0.2)}, r"scale of a crop must be \(low, high\)"),
        (Crop, {"size": 8, "scale": (0.5, 2.0)}, r"scale of a crop must be \(low, high\)"),
        (Crop, {"size": 8, "ratio": (0.0, 1.0)}, r"ratio of a crop must be \(low, high\)"),
        (Crop, {"size": 8, "filter": "nearest"}, "filter of a crop must be one of 'bilinear', 'bicubic', got 'nearest'"),
        (View, {"crop": Crop(8), "look": Look(blur=0.5, kernel=17)}, "17 taps .* more than 8 pixels, got 8"),
        (Recipe, {"views": (View(Crop(8)),), "full": 2}, r"full must lie in 1..1, the number of views, got 2"),
    ],
)
def test_bad_parameters_are_refused(what: type, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        what(**arguments)


def test_a_recipe_can_be_written_down() -> None:
    written = asdict(recipe("moco", 32))
    assert written["views"][0]["crop"]["scale"] == (0.2, 1.0)


def test_the_smallest_crop_can_be_chosen() -> None:
    assert [view.crop.scale for view in recipe("simclr", 32, small_crops=1, min_area=0.1).views] == [
        (0.1, 1.0), (0.1, 1.0), (0.05, 0.14),
    ]  # fmt: skip
    assert recipe("moco", 224, min_area=0.3).views[0].crop.scale == (0.3, 1.0)
    with pytest.raises(ValueError, match="'none' takes the whole image"):
        recipe("none", 32, min_area=0.5)
    with pytest.raises(ValueError, match="scale of a crop"):
        recipe("simclr", 32, min_area=0.0)
