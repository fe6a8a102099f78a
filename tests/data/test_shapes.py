"""Shapes: motifs against closed forms, and the laws of the renderer."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from entrec.data import motifs, render
from entrec.data.motifs import MOTIFS
from entrec.data.shapes import CLASSES


def plane(side: float = 1.2, points: int = 1201) -> tuple[Tensor, Tensor]:
    axis = torch.linspace(-side, side, points, dtype=torch.float64)
    x, y = torch.meshgrid(axis, axis, indexing="xy")
    return x, y


def area(name: str) -> float:
    x, y = plane()
    return float((MOTIFS[name](x, y) < 0).double().mean()) * 2.4**2


@pytest.mark.parametrize(
    ("name", "closed_form"),
    [
        ("disc", math.pi * 0.65**2),
        ("ring", math.pi * (0.805**2 - 0.475**2)),
        ("square", 1.152**2),
        ("frame", 1.4**2 - 0.8**2),
        ("triangle", 3 * math.sqrt(3) / 4),  # its corners lie on the unit circle
        ("cross", 2 * 1.71 * 0.45 - 0.45**2),
        ("star", 5 * 0.452 * math.sin(math.pi / 5)),
        ("heart", 4 * 0.431**2 + math.pi * 0.431**2),
        ("bars", 2 * 1.58 * 0.42),
    ],
)
def test_motifs_cover_what_their_geometry_says(name: str, closed_form: float) -> None:
    assert area(name) == pytest.approx(closed_form, rel=0.01)  # points of a grid


@pytest.mark.parametrize("name", CLASSES)
def test_motifs_are_alike_in_area_their_own_mirror_image_and_in_the_unit_disc(name: str) -> None:
    x, y = plane()
    distance = MOTIFS[name](x, y)
    assert area(name) == pytest.approx(4 / 3, rel=0.03)
    torch.testing.assert_close(distance, MOTIFS[name](-x, y))
    assert torch.hypot(x, y)[distance < 0].max() <= 1


def test_a_distance_is_how_far_the_edge_is() -> None:
    x = torch.tensor([0.0, 0.65, 1.65])
    torch.testing.assert_close(motifs.disc(x, torch.zeros(3)), torch.tensor([-0.65, 0.0, 1.0]))


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    first, again, other = render(50, 3), render(50, 3), render(50, 4)
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.images, other.images)


@pytest.mark.parametrize("size", [8, 32, 48])
def test_pictures_are_uint8_and_classes_equally_frequent(size: int) -> None:
    pictures = render(1037, 0, size)  # more than one part of the work
    assert pictures.images.shape == (1037, 3, size, size)
    assert pictures.images.dtype == torch.uint8
    assert set(torch.bincount(pictures.labels, minlength=len(CLASSES)).tolist()) == {103, 104}
    assert all(len(value) == 1037 for value in pictures.factors.values())


def test_factors_are_independent_of_the_class() -> None:
    pictures = render(4000, 0, 8)
    for name, value in pictures.factors.items():
        flat = value.reshape(len(value), -1)[:, 0].double()
        means = torch.stack([flat[pictures.labels == label].mean() for label in range(len(CLASSES))])
        error = flat.std() / math.sqrt(len(flat) / len(CLASSES))
        assert (means - flat.mean()).abs().max() < 4.5 * error, name


def test_edges_are_smooth_so_a_small_picture_is_a_large_one_reduced() -> None:
    small, large = render(20, 5, 32), render(20, 5, 96)
    reduced = functional.avg_pool2d(large.images.float(), 3)
    assert torch.equal(small.labels, large.labels)
    assert (reduced - small.images).abs().mean() < 14  # of 255; the noise alone makes about 12.9


def test_each_copy_is_lighter_than_the_background_and_has_its_own_hue() -> None:
    factors = render(10, 0).factors
    assert factors["contrast"].min() >= 0.2
    assert factors["hue"].shape == (10, 16)
    assert factors["hue"].std(dim=1).min() > 0.5


@pytest.mark.parametrize(("arguments", "match"), [((0, 0), "n must"), ((1, -1), "seed must"), ((1, 0, 4), "size must")])
def test_bad_arguments_are_named(arguments: tuple[int, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        render(*arguments)


@pytest.mark.slow
def test_pixels_say_little_of_the_class() -> None:
    from sklearn.linear_model import LogisticRegression

    train, test = render(4096, 0), render(1024, 1)
    probe = LogisticRegression(C=1e-3, max_iter=50, tol=0.1).fit(train.images.flatten(1).numpy() / 255, train.labels.numpy())
    assert probe.score(test.images.flatten(1).numpy() / 255, test.labels.numpy()) < 0.3
