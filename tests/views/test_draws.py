"""The laws of the parameters against what torchvision's own transforms draw: two-sample tests with fixed seeds."""

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Generator, Tensor
from torchvision.transforms import v2

from entrec.views.draws import centred_box, chance, crop_boxes, jitter_factors

RARE = 1e-3  # a p-value below this, at fixed seeds, would be no accident
STANDARD = (3 / 4, 4 / 3)


def their_boxes(n: int, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]) -> Tensor:
    transform = v2.RandomResizedCrop(8, scale=scale, ratio=ratio)
    image = torch.empty(1, height, width)
    drawn: list[dict[str, Any]] = [transform.make_params([image]) for _ in range(n)]
    return torch.tensor([[box[side] for side in ("top", "left", "height", "width")] for box in drawn]).float()


def same_law(ours: Tensor, theirs: Tensor) -> None:
    assert stats.ks_2samp(ours.numpy(), theirs.numpy()).pvalue > RARE


def same_counts(ours: Tensor, theirs: Tensor) -> None:
    """Chi-squared, over the values that either has met often enough."""
    values, code = torch.cat([ours, theirs]).unique(return_inverse=True, dim=0)
    counts = torch.stack([code[: len(ours)].bincount(minlength=len(values)), code[len(ours) :].bincount(minlength=len(values))])
    often = counts[:, counts.sum(dim=0) >= 20]
    rest = counts.sum(dim=1, keepdim=True) - often.sum(dim=1, keepdim=True)
    table = torch.cat([often, rest], dim=1) if int(rest.sum()) >= 20 else often
    assert stats.chi2_contingency(table.numpy()).pvalue > RARE


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (32, 32, (0.2, 1.0), STANDARD),
        (224, 224, (0.08, 1.0), STANDARD),
        (96, 60, (0.05, 0.14), STANDARD),
        (300, 40, (0.4, 1.0), STANDARD),  # hardly an attempt fits: the centre
        (40, 50, (0.5, 1.0), (0.3, 3.0)),
    ],
)
def test_crops_follow_torchvisions_law(height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    theirs = their_boxes(3000, height, width, scale, ratio)
    ours = torch.stack(crop_boxes(20000, height, width, scale, ratio, Generator().manual_seed(1)), dim=1)
    for side in range(4):
        same_law(ours[:, side], theirs[:, side])
    same_law(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3])
    same_law(ours[:, 3] / ours[:, 2], theirs[:, 3] / theirs[:, 2])


def test_whole_boxes_of_a_tiny_image_are_as_likely_as_torchvisions() -> None:
    ours = torch.stack(crop_boxes(40000, 5, 4, (0.1, 1.0), STANDARD, Generator().manual_seed(1)), dim=1)
    same_counts(ours, their_boxes(5000, 5, 4, (0.1, 1.0), STANDARD))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (7, 3), (32, 32), (500, 333)])
def test_every_crop_lies_in_the_image_in_whole_pixels(height: int, width: int) -> None:
    top, left, h, w = crop_boxes(5000, height, width, (0.01, 1.0), (0.2, 5.0), Generator().manual_seed(0))
    assert bool(((top >= 0) & (left >= 0) & (h >= 1) & (w >= 1) & (top + h <= height) & (left + w <= width)).all())
    assert all(torch.equal(side, side.round()) for side in (top, left, h, w))


@pytest.mark.parametrize(("height", "width"), [(100, 10), (10, 100), (100, 90)])
def test_the_fallback_is_torchvisions(height: int, width: int) -> None:
    impossible = (4.0, 4.0)  # more than the image: no attempt fits
    theirs = their_boxes(1, height, width, impossible, STANDARD)[0]
    ours = torch.stack(crop_boxes(1, height, width, impossible, STANDARD, Generator()), dim=1)[0]
    assert torch.equal(ours, theirs)
    assert torch.equal(torch.tensor(centred_box(height, width, STANDARD)).float(), theirs)


def test_jitter_follows_torchvisions_law() -> None:
    reach = (0.8, 1.5, 0.4, 0.2)
    transform = v2.ColorJitter(*reach)
    drawn: list[dict[str, Any]] = [transform.make_params([]) for _ in range(4000)]
    ours = jitter_factors(20000, *reach, Generator().manual_seed(0))
    for name in ("brightness", "contrast", "saturation", "hue"):
        same_law(getattr(ours, name), torch.tensor([one[f"{name}_factor"] for one in drawn]))
    same_counts(ours.position.argsort(dim=1), torch.stack([one["fn_idx"] for one in drawn]))
    assert len(ours.position.unique(dim=0)) == 24


def test_parameters_of_a_sample_do_not_depend_on_each_other() -> None:
    jitter = jitter_factors(20000, 0.8, 0.8, 0.8, 0.2, Generator().manual_seed(0))
    together = torch.corrcoef(torch.stack([*jitter[:4], *jitter.position[:, :3].T.float()]))
    independent = together[:4] - torch.eye(7)[:4]
    assert float(independent.abs().max()) < 5 / 20000**0.5


@pytest.mark.parametrize("p", [0.0, 0.2, 0.8, 1.0])
def test_chances_have_their_probability(p: float) -> None:
    share = float(chance(20000, p, Generator().manual_seed(0)).float().mean())
    assert abs(share - p) <= 4 * (p * (1 - p) / 20000) ** 0.5
