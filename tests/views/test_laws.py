"""Whole recipes in law: against torchvision's transforms, batches against workers, and the GPU against the CPU."""

from typing import get_args

import pytest
import torch
from scipy import stats
from torch import Generator, Tensor
from torchvision.transforms import InterpolationMode, v2

from entrec.views import Augment, Crop, Look, Recipe, RecipeName, View, recipe
from tests.views.pictures import MEAN, STD, augment, picture, seeded

RARE = 1e-3  # a p-value below this, at fixed seeds, would be no accident
NAMES = get_args(RecipeName)


def theirs(view: View) -> v2.Transform:
    """A view as people write it with torchvision, for images of any dtype."""
    crop, look = view.crop, view.look
    cubic = InterpolationMode(crop.filter)
    return v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.RandomResizedCrop(crop.size, crop.scale, crop.ratio, interpolation=cubic, antialias=True),
            v2.Lambda(lambda x: x.clamp(0, 1)),
            v2.RandomHorizontalFlip(look.flip),
            v2.RandomApply([v2.ColorJitter(look.brightness, look.contrast, look.saturation, look.hue)], look.jitter),
            v2.RandomGrayscale(look.grey),
            v2.RandomApply([v2.GaussianBlur(look.kernel, look.sigma)], look.blur),
            v2.RandomSolarize(0.5, look.solarise),
            v2.Normalize(list(MEAN), list(STD)),
        ]
    )


def summaries(x: Tensor) -> dict[str, Tensor]:
    """Numbers of each view (k, C, s, s) that its changes move: light, contrast, colour, sharpness, sides."""
    half = x.shape[-1] // 2
    return {
        "light": x.mean(dim=(1, 2, 3)),
        "contrast": x.std(dim=(1, 2, 3)),
        "red": (x[:, 0] - x[:, 1]).mean(dim=(1, 2)),
        "blue": (x[:, 2] - x[:, 1]).mean(dim=(1, 2)),
        "colour": x.std(dim=1).mean(dim=(1, 2)),
        "sharpness": x.diff(dim=-1).abs().mean(dim=(1, 2, 3)),
        "sides": (x[..., :half] - x[..., -half:]).mean(dim=(1, 2, 3)),
    }


def same_law(a: Tensor, b: Tensor) -> None:
    for name, ours in summaries(a).items():
        p = stats.ks_2samp(ours.numpy(), summaries(b)[name].numpy()).pvalue
        assert p > RARE, f"{name} differs, p = {p}"
    for power in (1, 2):  # the mean and the second moment of each pixel, in standard errors of their difference
        x, y = a**power, b**power
        error = (x.var(dim=0) / len(x) + y.var(dim=0) / len(y)).sqrt()
        assert float(((x.mean(dim=0) - y.mean(dim=0)) / error).abs().max()) < 5


@pytest.mark.parametrize(("name", "view"), [("simclr", 0), ("moco", 0), ("byol", 0), ("byol", 1), ("dino", 2), ("light", 0)])
def test_recipes_follow_the_law_of_torchvisions_transforms(name: RecipeName, view: int) -> None:
    image = picture()
    blurred = recipe(name, 64, small_crops=1).views[view]  # at 64 pixels the blur is on
    kernel = min(blurred.look.kernel, 5)
    one = View(Crop(12, blurred.crop.scale, filter=blurred.crop.filter), Look(**{**vars(blurred.look), "kernel": kernel}))
    (ours,) = Augment(Recipe((one,), 1), MEAN, STD)(image.expand(3000, 3, 30, 34), seeded())
    transform = theirs(one)
    same_law(ours, torch.stack([transform(image) for _ in range(600)]))


@pytest.mark.parametrize("name", ["simclr", "byol"])
def test_a_workers_crop_finished_on_the_device_has_the_law_of_the_batch(name: RecipeName) -> None:
    image, views = picture(), augment(name, 12)
    generator = seeded(1)
    crops = [views.crop(image, generator) for _ in range(800)]
    finished = views.finish(tuple(torch.stack(view) for view in zip(*crops, strict=True)), generator)
    for ours, other in zip(views(image.expand(3000, 3, 30, 34), seeded()), finished, strict=True):
        same_law(ours, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_views_on_a_gpu(name: RecipeName) -> None:
    views, generator = augment(name, 64, small_crops=1), Generator("cuda").manual_seed(0)
    images = picture().cuda().expand(3000, 3, 30, 34)
    views(images[:2], generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        made = views(images, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    if name == "none":
        torch.testing.assert_close(made[0][:1].cpu(), views(images[:1].cpu(), seeded())[0], atol=1e-4, rtol=0)
        return
    for ours, other in zip(made, views(images[:1000].cpu(), seeded()), strict=True):
        same_law(ours.cpu(), other)
