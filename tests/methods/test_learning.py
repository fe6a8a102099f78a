"""Every method learns what its views share, with its own loss and with ER: a form for vectors, which takes seconds.

A datum has content, which all its views share, and style, which each view draws anew; a view is a fixed nonlinear mixture of
both (the setting of von Kügelgen et al., 2021), from which an untrained encoder tells little. The class is in the content. The
form for pictures, through `entrec.train`, is in tests/training/test_learning.py.
"""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from entrec import VonMisesFisher
from entrec.evaluation.features import Features, evaluating
from entrec.evaluation.linear import linear_probe
from entrec.methods import METHODS, Progress, Views

CLASSES, CONTENT, STYLE, SEEN = 5, 5, 6, 32  # sizes of the content, of the style and of a view
IMAGES, BATCH, STEPS, WIDTH = 512, 128, 300, 32
OPTIONS: dict[str, dict[str, Any]] = {
    "simclr": {},
    "cmc": {},
    "ir": {},
    "moco": {"queue": 256, "ema": 0.9},
    "deepcluster": {"clusters": 10},
    "swav": {"prototypes": 10, "small_crops": 0},
    "byol": {"ema": 0.9},
    "dino": {"codes": 32, "small_crops": 0, "ema": 0.9, "schedule": "constant", "norm": True, "bottleneck": 16},
}
CASES: list[tuple[str, bool, dict[str, Any]]] = [
    *((name, er, {}) for name in METHODS for er in (False, True)),
    ("dino", True, {"estimator": "joe"}),
]


class World:
    """Data of known content, and views of them."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)
        sizes = (CONTENT + STYLE, SEEN, SEEN)
        self.maps = [torch.randn(i, o, generator=self.generator) / math.sqrt(i) for i, o in pairwise(sizes)]
        self.centres = torch.randn(CLASSES, CONTENT, generator=self.generator)

    def contents(self, n: int) -> tuple[Tensor, Tensor]:
        """The content and the class of n new data."""
        labels = torch.randint(CLASSES, (n,), generator=self.generator)
        return self.centres[labels] + 0.2 * torch.randn(n, CONTENT, generator=self.generator), labels

    def view(self, contents: Tensor) -> Tensor:
        """One view of each, with a style of its own."""
        style = 2 * torch.randn(len(contents), STYLE, generator=self.generator)
        first, second = self.maps
        return leaky_relu(torch.cat([contents, style], dim=1) @ first, 0.2) @ second


def encoder_of() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(SEEN, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, WIDTH, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm1d(WIDTH), nn.ReLU())


def probed(encoder: nn.Module) -> tuple[float, float]:
    """Accuracy of a linear probe of the class, and its standard error: 500 data to learn from and 2000 to be judged by."""
    world = World()
    with evaluating(encoder), torch.no_grad():
        parts = [(world.contents(n)) for n in (500, 2000)]
        train, test = (Features(encoder(world.view(contents)), labels) for contents, labels in parts)
    found = linear_probe(train, test, l2=1e-3)
    return found.accuracy, found.standard_error


def trained(name: str, er: bool, **options: Any) -> tuple[Any, list[float]]:
    """A method after some hundred steps, and the entropy that was measured at each."""
    world, entry = World(), METHODS[name]
    contents, _ = world.contents(IMAGES)
    encoder = encoder_of()
    chosen = entry.options(**{"hidden": 64, **({} if name == "dino" else {"dim": 16}), **OPTIONS[name], **options})
    per_image = {"images": IMAGES} if entry.per_image else {}
    method: Any = entry.build(encoder, WIDTH, chosen, er, False, **per_image)
    optimizer = torch.optim.AdamW(method.parameters(), 3e-3, weight_decay=1e-3)
    entropies = []
    for step in range(STEPS):
        if hasattr(method, "begin_epoch") and step % 20 == 0:
            method.begin_epoch(lambda module: _plain(module, world.view(contents)), torch.Generator().manual_seed(step))
        weights = getattr(method, "weights", torch.ones(IMAGES))
        places = torch.multinomial(weights, BATCH, replacement=True, generator=world.generator)
        views = tuple(world.view(contents[places]) for _ in range(2))
        if hasattr(method, "prepare"):
            method.prepare(Progress(step, STEPS))
        found = method(Views(views, places, 2))
        optimizer.zero_grad()
        found.loss.backward()
        if hasattr(method, "before_step"):
            method.before_step()
        optimizer.step()
        if hasattr(method, "update"):
            method.update(found)
        with torch.no_grad():
            entropies.append(method.measure(found).entropy.item())
    return method, entropies


@pytest.mark.parametrize(("name", "er", "options"), CASES, ids=str)
def test_what_views_share_is_learnt(name: str, er: bool, options: dict[str, Any]) -> None:
    before, error_before = probed(encoder_of())
    method, entropies = trained(name, er, **options)
    after, error_after = probed(method.encoder)
    gain, error = after - before, math.hypot(error_before, error_after)
    print(
        f"{name}{' + ER' if er else ''}: {before:.1%} -> {after:.1%}, a gain of {gain / error:.1f} standard errors; entropy "
        f"{sum(entropies[-20:]) / 20 - least(method):.2f} nats above collapse"
    )
    assert gain > 3 * error
    assert sum(entropies[-20:]) / 20 - least(method) > 0.5  # nats; a collapsed one has none of them


def least(method: Any) -> float:
    """The entropy of a batch that is all one point: a single code's, or a single kernel's."""
    continuous = getattr(method, "er", None) or getattr(method, "continuous", None)
    point = torch.eye(1, 16)
    return 0.0 if continuous is None else -VonMisesFisher(continuous.kappa).log_prob(point, point).item()


def _plain(module: nn.Module, view: Tensor) -> tuple[Tensor, Tensor]:
    with evaluating(module), torch.no_grad():
        return module(view), torch.arange(len(view))
