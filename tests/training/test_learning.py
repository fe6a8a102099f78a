"""Shapes have headroom, and every method learns from them: the full form, through `entrec.train`, of minutes a method."""

from math import hypot
from pathlib import Path
from typing import Any

import pytest
import torch

import entrec
from entrec import VonMisesFisher
from entrec.data import Source, open_source
from entrec.evaluation.features import Features, extract
from entrec.evaluation.linear import Probe, linear_probe
from entrec.methods import METHODS
from entrec.training.assemble import assemble
from entrec.training.settings import settings
from entrec.views.augment import Plain

EPOCHS, BATCH = 12, 64
CASES: list[tuple[str, dict[str, Any]]] = [
    *((method, {"er": er}) for method in METHODS for er in (False, True)),
    ("dino", {"er": True, "estimator": "joe"}),
]


@pytest.fixture(scope="module")
def shapes() -> Source:
    return open_source("shapes")


def untrained(source: Source, seed: int = 0, **given: Any) -> Probe:
    """The probe of the encoder that a run with this seed begins with."""
    parts = assemble(settings("byol", {"seed": seed, **given}), source)

    def features(split: Any) -> Features:
        return extract(parts.backbone.module, split, Plain(parts.augment, source.image_size))

    return linear_probe(features(source.train), features(source.test))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_an_untrained_encoder_says_little_of_the_class(seed: int, shapes: Source) -> None:
    assert untrained(shapes, seed).accuracy < 0.45


@pytest.mark.slow
@pytest.mark.parametrize(("method", "given"), CASES, ids=str)
def test_a_method_learns_from_shapes(method: str, given: dict[str, Any], shapes: Source, tmp_path: Path) -> None:
    before = untrained(shapes)
    how = {"epochs": EPOCHS, "batch_size": BATCH, "evaluate_every": EPOCHS, **given}
    run = entrec.train(method, data=shapes, out=tmp_path / "run", **how)
    after = run.summary["linear_top1"]
    gain, error = after - before.accuracy, hypot(before.standard_error, (after * (1 - after) / len(shapes.test)) ** 0.5)  # type: ignore[arg-type]
    print(f"{method} {given}: {before.accuracy:.1%} -> {after:.1%}, a gain of {gain / error:.1f} standard errors")
    assert gain > 3 * error
    assert run.summary["entropy"] - least(run.config) > 0.5  # nats; a collapsed one has none of them


def least(config: dict[str, Any]) -> float:
    """The entropy of a batch that is all one point: a single code's, or a single kernel's."""
    own_codes = config["method"] == "dino" and not (config["er"] and config["estimator"] != "discrete")
    if config["method"] in ("swav", "deepcluster") or own_codes:
        return 0.0
    point = torch.eye(1, config["bottleneck" if config["method"] == "dino" else "dim"])
    return -VonMisesFisher(config["kappa"]).log_prob(point, point).item()


@pytest.mark.slow
def test_a_trained_encoder_knows_the_class(shapes: Source, tmp_path: Path) -> None:
    run = entrec.train("simclr", data=shapes, out=tmp_path / "run", epochs=EPOCHS, batch_size=BATCH, evaluate_every=EPOCHS)
    assert run.summary["linear_top1"] > 0.85
