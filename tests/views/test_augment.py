"""Whole recipes: the promises about samples, generators, channels and evaluation (their laws: test_laws)."""

import pickle
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms import InterpolationMode, v2

from entrec.views import Augment, Crop, Recipe, RecipeName, View, ops, recipe
from entrec.views.augment import Plain
from entrec.views.draws import Drawn, crop_boxes
from tests.views.pictures import MEAN, STD, augment, batch, picture, seeded

NAMES = get_args(RecipeName)
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "item")  # the device must answer before they return


def test_a_workers_crop_is_torchvisions_of_the_same_box() -> None:
    image = picture(90, 70)
    for kind in ("bilinear", "bicubic"):
        crop = Crop(24, (0.1, 1.0), filter=kind)
        (cut,) = Augment(Recipe((View(crop),), 1), MEAN, STD).crop(image, seeded(3))
        box = [int(side) for side in crop_boxes(1, 90, 70, (0.1, 1.0), crop.ratio, seeded(3))]
        expected = v2.functional.resized_crop(image, *box, [24, 24], interpolation=InterpolationMode(kind), antialias=True)
        assert torch.equal(cut, expected)


@pytest.mark.parametrize("name", NAMES)
def test_views_are_normalised_float32_of_the_recipes_sizes(name: RecipeName) -> None:
    views = augment(name, 16, views=3, small_crops=2)(batch(5), seeded())
    assert [tuple(view.shape) for view in views] == [(5, 3, 16, 16)] * 3 + [(5, 3, 7, 7)] * 2
    assert all(view.dtype == torch.float32 and view.is_contiguous() for view in views)
    for view in views:
        pixels = view * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
        assert -1e-5 <= float(pixels.min()) <= float(pixels.max()) <= 1 + 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_generator_determines_the_views(name: RecipeName) -> None:
    views, images = augment(name, 64, small_crops=1), batch(4)
    first, again, other = views(images, seeded(1)), views(images, seeded(1)), views(images, seeded(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    if name != "none":
        assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["simclr", "byol", "moco", "swav", "dino", "light"])
def test_equal_images_get_different_views(name: RecipeName) -> None:
    for view in augment(name, 64)(picture().expand(6, 3, 30, 34), seeded()):
        assert len(view.flatten(1).unique(dim=0)) == 6


def test_the_views_of_a_sample_do_not_depend_on_the_others_pixels() -> None:
    images = batch(6)
    others = batch(6)
    others[2] = images[2]
    for a, b in zip(augment("byol", 64)(images, seeded()), augment("byol", 64)(others, seeded()), strict=True):
        torch.testing.assert_close(a[2], b[2], atol=1e-5, rtol=0)


def test_changes_come_in_the_recipes_order() -> None:
    view = recipe("byol", 64).views[1]
    (made,) = Augment(Recipe((view,), 1), MEAN, STD)(images := torch.rand(40, 3, 20, 20), seeded())
    generator, look = seeded(), view.look
    x = ops.random_resized_crop(images, view.crop, generator)
    x = ops.colour_jitter(ops.flip(x, 0.5, generator), look, generator)
    x = ops.blur(ops.grey(x, 0.2, generator), 0.1, look.sigma, look.kernel, generator)
    x = ops.normalise(ops.solarise(x, 0.2, generator), torch.tensor(MEAN), torch.tensor(STD))
    assert torch.equal(made, x)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_all_numbers_that_are_drawn_are_used(name: RecipeName, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Drawn] = []

    class Watched(Drawn):
        def __init__(self, numbers: Tensor) -> None:
            super().__init__(numbers)
            left.append(self)

    monkeypatch.setattr("entrec.views.augment.Drawn", Watched)
    views = Augment(recipe(name, 64, small_crops=1), (0.5,) * channels, (0.2,) * channels)
    views(batch(3, channels), seeded())
    views.finish(tuple(torch.rand(3, channels, 64, 64) for _ in views.recipe.views), seeded())
    assert [len(random.left) for random in left] == [0] * 2 * len(views.recipe.views)


@pytest.mark.parametrize("name", NAMES)
def test_views_follow_from_the_numbers_alone(name: RecipeName) -> None:
    views, images = augment(name, 64, small_crops=1), batch(4)
    numbers = views.draw(4, seeded())
    assert all(map(torch.equal, views.made(images, numbers), views(images, seeded())))
    assert views.made(images[2:], [own[:, 2:] for own in numbers])[0].shape[0] == 2
    for part, whole in zip(views.made(images[2:], [own[:, 2:] for own in numbers]), views(images, seeded()), strict=True):
        torch.testing.assert_close(part, whole[2:], atol=1e-5, rtol=0)


def test_too_few_numbers_are_an_error() -> None:
    views = augment("simclr", 16)
    with pytest.raises(ValueError, match="1 numbers are wanted for each sample, and 0 are left"):
        views.made(batch(2), [own[:-1] for own in views.draw(2, seeded())])


def test_bytes_and_floats_give_the_same_views_and_are_left_alone() -> None:
    images = batch(6)
    floats = images.float() / 255
    before = images.clone(), floats.clone()
    for a, b in zip(augment("byol", 64)(images, seeded()), augment("byol", 64)(floats, seeded()), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    augment("none", 20).finish((floats,), seeded())
    augment().plain(floats, 20)
    assert torch.equal(images, before[0])
    assert torch.equal(floats, before[1])


def test_views_are_the_same_under_autocast() -> None:
    images = batch(6)
    outside = augment("byol", 64)(images, seeded())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = augment("byol", 64)(images, seeded())
    assert all(torch.equal(a, b) for a, b in zip(outside, inside, strict=True))


class NothingWaits(TorchDispatchMode):
    """Refuses every operation that needs the values of a tensor on the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(word in func.name() for word in WAITING), func.name()
        if "index" in func.name():
            masks = [index for index in args[1] if isinstance(index, Tensor) and index.dtype == torch.bool]
            assert not masks, func.name()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", NAMES)
def test_no_view_waits_for_the_device(name: RecipeName) -> None:
    views, images, generator = augment(name, 64, small_crops=1), batch(4), seeded()
    with NothingWaits():  # type: ignore[no-untyped-call]
        views.finish(views(images, generator), generator)
        views.plain(images, 96)


@pytest.mark.parametrize("channels", [1, 4, 13])
def test_other_numbers_of_channels_lose_colour_changes_with_a_notice(channels: int) -> None:
    views = Augment(recipe("byol", 64), [0.5] * channels, [0.2] * channels)
    assert views.notice == (
        f"hue, saturation, grey need 3 channels and are off for images of {channels} (brightness and contrast stay)"
    )
    made = views(batch(5, channels), seeded())
    assert [tuple(view.shape) for view in made] == [(5, channels, 64, 64)] * 2
    assert all(len(view.flatten(1).unique(dim=0)) == 5 for view in made)


def test_there_is_no_notice_without_a_reason() -> None:
    assert augment("simclr").notice == ""
    assert Augment(recipe("light", 16), [0.5], [0.2]).notice == ""


def test_a_sample_of_several_images_gets_one_view_of_each() -> None:
    rgb, depth = batch(4), torch.rand(4, 1, 40, 30)
    views = Augment(recipe("byol", 16), [MEAN, (0.5,)], [STD, (0.1,)])
    assert "off for images of 1 " in views.notice
    first, second = views.each((rgb, depth), seeded())
    assert (first.shape, second.shape) == ((4, 3, 16, 16), (4, 1, 16, 16))
    crops = views.crop((rgb[0], depth[0]), seeded())
    assert [tuple(crop.shape) for crop in crops] == [(3, 16, 16), (1, 16, 16)]
    assert [crop.dtype for crop in crops] == [torch.uint8, torch.float32]
    a, b = views.finish(tuple(crop[None] for crop in crops), seeded())
    assert (a.shape, b.shape) == ((1, 3, 16, 16), (1, 1, 16, 16))
    with pytest.raises(ValueError, match="those of 2 images a sample: use `each`"):
        views(rgb, seeded())


def test_three_images_with_two_looks_take_turns() -> None:
    views = Augment(Recipe((View(Crop(8)), View(Crop(6))), 2), MEAN, STD)
    assert [view.shape[-1] for view in views.each((batch(2), batch(2), batch(2)), seeded())] == [8, 6, 8]


def test_none_leaves_each_image_as_it_is() -> None:
    rgb, other = torch.rand(4, 3, 16, 16), torch.rand(4, 3, 16, 16)
    views = augment("none", 16).each((rgb, other), seeded())
    for view, x in zip(views, (rgb, other), strict=True):
        torch.testing.assert_close(view, v2.functional.normalize(x, list(MEAN), list(STD)))


@pytest.mark.parametrize(("shape", "size"), [((150, 120), 96), ((97, 300), 128), ((200, 200), 224), ((256, 256), 224)])
def test_an_evaluation_view_is_the_centre_of_a_resized_image(shape: tuple[int, int], size: int) -> None:
    image = picture(*shape)
    reference = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.Resize(round(size * 256 / 224), antialias=True),
            v2.CenterCrop(size),
            v2.Normalize(list(MEAN), list(STD)),
        ]
    )
    torch.testing.assert_close(augment().plain(image[None], size)[0], reference(image), atol=1e-4, rtol=0)


def test_small_evaluation_views_are_the_whole_image() -> None:
    image = picture(50, 40)
    whole = v2.functional.resize(image.float() / 255, [32, 32], antialias=True)
    expected = v2.functional.normalize(whole, list(MEAN), list(STD))
    torch.testing.assert_close(augment().plain(image[None], 32)[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("size", [32, 96])
def test_evaluation_views_of_the_right_size_are_the_images(size: int) -> None:
    image = picture(size, size)
    expected = v2.functional.normalize(image.float() / 255, list(MEAN), list(STD))
    torch.testing.assert_close(augment().plain(image[None], size)[0], expected)


def test_an_augment_travels_to_workers() -> None:
    views, image = augment("byol"), picture()
    assert torch.equal(pickle.loads(pickle.dumps(views)).crop(image, seeded())[0], views.crop(image, seeded())[0])


@pytest.mark.parametrize("size", [16, 96])
def test_plain_travels_to_workers_and_does_as_the_method_does(size: int) -> None:
    views, images = augment(), batch(3)
    plain = Plain(views, size)
    assert torch.equal(plain(images), views.plain(images, size))
    assert torch.equal(pickle.loads(pickle.dumps(plain))(images), views.plain(images, size))
    one_by_one = torch.cat([plain(image[None]) for image in images])
    assert torch.equal(one_by_one, plain(images))


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        (95, "95 x 95 pixels: the whole image, resized (bilinear, antialiased)"),
        (96, "96 x 96 pixels: the centre of the image, its shorter side resized to 110 (bilinear, antialiased), or the image"),
        (
            224,
            "224 x 224 pixels: the centre of the image, its shorter side resized to 256 (bilinear, antialiased), or the image",
        ),
    ],
)
def test_plain_says_what_it_takes(size: int, taken: str) -> None:
    said = Plain(augment(), size).rule
    assert said == f"views of {taken}" + (" as it is where that is its size" if size >= 96 else "")


def test_bad_images_are_refused() -> None:
    views = augment()
    with pytest.raises(ValueError, match=r"shape \(k, C, H, W\), got \(3, 8, 8\)"):
        views(torch.rand(3, 8, 8), seeded())
    with pytest.raises(TypeError, match=r"uint8, or floating-point in 0..1, got torch.int64"):
        views(torch.ones(1, 3, 8, 8, dtype=torch.int64), seeded())
    with pytest.raises(ValueError, match=r"those of 3 channels, got images of shape \(2, 1, 20, 24\)"):
        views(batch(2, 1), seeded())
    with pytest.raises(ValueError, match=r"an image must have shape \(C, H, W\), got \(2, 3, 20, 24\)"):
        views.crop(batch(2), seeded())
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        views.plain(batch(2), 0)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), (0.2, 0.2), "as many channels as each other"),
        ((0.5,), (0.0,), "std must be positive"),
        ((), (), "a number for each channel, got none"),
        ([(0.5,), (0.5,)], (0.2,), "as many channels as each other"),
    ],
)
def test_bad_levels_are_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment(recipe("moco", 8), mean, std)
