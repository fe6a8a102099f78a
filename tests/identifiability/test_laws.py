import math

import pytest

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher
from entrec.identifiability.laws import Law, law, model


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("uniform", None),
        ("vmf:10", VonMisesFisher(10.0)),
        ("normal:0.05", Gaussian(0.05)),
        ("Laplace:1", Laplace(1.0)),
        ("gennorm:3:0.05", GeneralizedNormal(3.0, 0.05)),
    ],
)
def test_words_name_laws(word: str, expected: Law | None) -> None:
    assert law(word) == expected


@pytest.mark.parametrize(("word", "p"), [("laplace", 1), ("normal", 2), ("gennorm:3", 3)])
def test_models_without_a_scale_are_exponentials_of_plain_powers(word: str, p: int) -> None:
    density = model(word)
    ratio = density.factor * (0.7 / density.unit) ** p  # -log q at a distance of 0.7, less its constant
    assert ratio == pytest.approx(0.7**p)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("normale:1", "did you mean 'normal'"),
        ("laplac", "did you mean 'laplace'"),
        ("vmf", "vmf:KAPPA"),
        ("uniform:1", "a law must be"),
        ("normal:1:2", "a law must be"),
        ("normal:wide", "'wide' in 'normal:wide' is no number"),
        ("vmf:0", "within 1e-06 and 1e\\+06"),
        ("normal:-1", "within 1e-06"),
        ("laplace:nan", "within 1e-06"),
        ("gennorm:3:inf", "within 1e-06"),
        ("normal:1e7", "within 1e-06 and 1e\\+06, got 'normal:1e7'"),
        ("laplace:1e-7", "within 1e-06"),
        ("gennorm:0.1:1", "BETA must be within 0.25 and 100"),
        ("gennorm:101", "BETA must be"),
        ("", "a law must be"),
    ],
)
def test_other_words_are_refused(word: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        law(word)


def test_a_uniform_model_tells_nothing() -> None:
    with pytest.raises(ValueError, match=r"a model must be .* got 'uniform'"):
        model("uniform")


def test_normal_as_a_model_is_sigma_one_over_root_two() -> None:
    assert model("normal") == Gaussian(math.sqrt(0.5))
