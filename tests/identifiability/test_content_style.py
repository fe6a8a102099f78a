import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Generator

from entrec.identifiability import ContentStyle, Isolation, content_style, isolate

TINY = ContentStyle(content=2, style=1, batch=32, steps=20, rate=1e-3, width=5, draws=10)
K = 50_000


def test_views_share_the_content_and_a_random_part_of_the_style() -> None:
    z1, z2 = ContentStyle(content=2, style=3, change=0.75).pairs(K, Generator().manual_seed(0))
    assert torch.equal(z1[:, :2], z2[:, :2])
    changed = z1[:, 2:] != z2[:, 2:]
    assert abs(float(changed.float().mean()) - 0.75) < 0.01
    assert abs(float((changed[:, 0] & changed[:, 1]).float().mean()) - 0.75**2) < 0.01  # one by one
    noise = (z2 - z1)[:, 2:][changed]
    for drawn in (z1.flatten(), noise):
        assert stats.kstest(drawn.numpy(), stats.norm().cdf).pvalue > 1e-5


def test_a_run_repeats_bit_for_bit_and_another_seed_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_style, "_JUDGED", 200)
    first, again = (replace(isolate(TINY, "cpu"), seconds=0.0) for _ in range(2))
    assert first == again
    assert isolate(replace(TINY, seed=1), "cpu").curve != first.curve


def test_projections_have_as_many_coordinates_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def r2(latents: torch.Tensor, found: torch.Tensor) -> float:
        assert ((found > 0) & (found < 1)).all()
        seen.append(found.shape[1])
        return 0.0

    monkeypatch.setattr(content_style, "r2", r2)
    monkeypatch.setattr(content_style, "nonlinear_r2", r2)
    isolate(TINY, "cpu")
    isolate(replace(TINY, outputs=3), "cpu")
    assert seen == [2] * 4 + [3] * 4


def test_a_run_that_diverges_says_when() -> None:
    heard: list[int] = []
    found: Isolation = isolate(replace(TINY, rate=1e6), "cpu", lambda step, loss: heard.append(step))
    assert found.diverged == heard[-1]
    assert math.isnan(found.content[0])
    assert math.isnan(found.style[1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"content": 0}, "content must be at least 1"),
        ({"style": 0}, "style must be at least 1"),
        ({"outputs": 0}, "outputs must be at least 1"),
        ({"change": 0.0}, "change must be a probability above 0"),
        ({"change": 1.5}, "change must be a probability above 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"bandwidth": -1.0}, "bandwidth must be positive"),
        ({"kernel": 0.0}, "kernel must be positive"),
        ({"kernel": 1e-9}, "kernel must be within 1e-06"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"precision": "tf23"}, "did you mean 'tf32'"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_asked_for(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ContentStyle(**given)


@pytest.mark.slow
@pytest.mark.parametrize("q", [{}, {"bandwidth": 1.0, "kernel": 0.1}], ids=str)  # a narrow one, and the theorem's
def test_content_is_kept_and_style_is_dropped(q: dict[str, Any]) -> None:
    found = isolate(ContentStyle(content=1, style=1, batch=512, steps=4000, rate=1e-3, width=30, draws=1000, **q), "cpu")
    assert found.content[0] > 0.85
    assert found.content[1] > 0.9
    assert max(found.style) < 0.1
