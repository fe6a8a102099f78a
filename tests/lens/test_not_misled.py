"""Sets that are unlike the textbook's and healthy all the same, or the other way round."""

import pytest
import torch
from torch import Tensor

from entrec.lens import diagnose, look, look_at_codes


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mean", [3.0, 5.0])
def test_a_common_mean_is_no_collapse_where_views_are_told_apart(mean: float) -> None:
    z = normal(1000, 512)
    views = z + mean, z + 0.5 * normal(1000, 512, seed=1) + mean
    found = look(*views)
    assert diagnose(found).name == "healthy"
    assert ("common mean" in diagnose(found).title) == (found.filled < 0.05)
    assert diagnose(look(views[0], views[1].roll(7, dims=0))).name in ("collapsed", "uninformative")


def test_directions_around_a_mean_that_tell_a_little_are_weak_as_an_untrained_networks_are() -> None:
    # SimCLR on digits after an epoch: 1 % of the way filled, 0.1 of the spread, nearer in 63 % of cases; it learns later.
    z = normal(1000, 64)
    found = look(*(5 + 0.3 * (z + 3 * normal(1000, 64, seed=seed)) for seed in (1, 2)))
    assert found.pairs is not None
    assert found.filled < 0.05
    assert 0.6 < found.pairs.nearer < 0.75
    assert diagnose(found).name == "weak"
    little = look(*(5 + 0.15 * (z + 5 * normal(1000, 64, seed=seed)) for seed in (1, 2)))
    assert little.pairs is not None
    assert little.pairs.nearer < 0.6
    assert diagnose(little).name == "collapsed"


def test_one_view_with_a_common_mean_is_told_to_be_centred_and_then_healthy() -> None:
    z = normal(1000, 768) + 5
    verdict = diagnose(look(z))
    assert verdict.name == "weak"
    assert "common mean" in verdict.title
    assert "Subtract the mean" in verdict.remedies[0]
    assert diagnose(look(z - z.mean(dim=0))).name == "healthy"
    assert diagnose(look(normal(1000, 768) + 100)).name == "collapsed"


def test_a_handful_of_rows_says_nothing_of_one_view_either() -> None:
    assert diagnose(look(normal(2, 16))).name == "saturated"
    assert diagnose(look(normal(15, 16))).name == "saturated"
    assert diagnose(look(normal(200, 16))).name == "healthy"


@pytest.mark.parametrize(("width", "active"), [(512, 20), (2048, 30), (2048, 60)])
def test_wide_features_with_few_active_dimensions_are_healthy(width: int, active: int) -> None:
    z = torch.zeros(1000, width)
    z[:, :active] = normal(1000, active)
    other = z.clone()
    other[:, :active] += 1.2 * normal(1000, active, seed=1)
    assert diagnose(look(z, other)).name == "healthy"


@pytest.mark.parametrize("width", [64, 512, 2048])
def test_two_or_three_directions_are_few_however_wide_the_layer(width: int) -> None:
    z = normal(1000, 3) @ normal(3, width, seed=2)
    other = z + 0.3 * normal(1000, 3, seed=1) @ normal(3, width, seed=2)
    assert diagnose(look(z, other)).name == "low rank"


def test_a_few_codes_of_many_are_few() -> None:
    for used, name in ((2, "low rank"), (100, "healthy")):
        codes = torch.eye(512)[torch.randint(used, (1000,), generator=torch.Generator().manual_seed(0))]
        assert diagnose(look_at_codes(codes, codes)).name == name


def test_soft_codes_that_tell_views_apart_are_no_even_guess() -> None:
    z, prototypes = normal(500, 128), normal(4096, 128, seed=1)
    logits = [torch.nn.functional.normalize(x, dim=1) @ torch.nn.functional.normalize(prototypes, dim=1).T / 0.1
              for x in (z, z + 0.3 * normal(500, 128, seed=2))]  # fmt: skip
    assert diagnose(look_at_codes(*(x.softmax(dim=1) for x in logits))).name == "healthy"


def test_one_broken_row_of_a_few_is_no_divergence() -> None:
    z = normal(64, 8)
    readings = look(z, z + normal(64, 8, seed=1))
    assert diagnose(readings, broken=1).name != "diverging"
    assert diagnose(readings, broken=2).name == "diverging"


def test_the_same_data_over_and_over_do_not_hide_what_is_told() -> None:
    z = normal(100, 16)
    views = z.repeat(8, 1), (z + 0.5 * normal(100, 16, seed=1)).repeat(8, 1)
    found = look(*views)
    assert found.pairs is not None
    assert found.pairs.nearer > 0.9


def test_a_kernel_that_sees_nothing_is_refused() -> None:
    for kappa in (0.0, -1.0, 1e5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="kappa must be positive and at most 10000"):
            look(normal(10, 3), kappa=kappa)
