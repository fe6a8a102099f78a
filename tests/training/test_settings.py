from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from entrec.methods import METHODS
from entrec.training.settings import Settings, fitting, read_config, settings


def test_the_methods_own_options_are_told_from_the_common_ones() -> None:
    found = settings("byol", {"er": True, "epochs": 3, "ema": 0.8, "kappa": 5})
    assert (found.method, found.er, found.epochs) == ("byol", True, 3)
    assert found.options == {"ema": 0.8, "kappa": 5.0}


@pytest.mark.parametrize("method", METHODS)
def test_no_option_of_a_method_hides_a_common_one(method: str) -> None:
    common = {field.name for field in fields(Settings)}
    assert common.isdisjoint(field.name for field in fields(METHODS[method].options))


def test_what_a_run_writes_can_be_given_again() -> None:
    found = settings("dino", {"er": True, "estimator": "joe", "centring": False, "ema": None, "data": "some/folder"})
    flat = found.flat()
    assert settings(flat.pop("method"), flat) == found


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("boyl", {}, "there is no method 'boyl'; did you mean 'byol'?"),
        ("byol", {"epoch": 3}, "there is no option 'epoch'; did you mean 'epochs'?"),
        ("simclr", {"ema": 0.9}, "simclr has no option 'ema', which moco, byol, dino have"),
        ("byol", {"centring": False}, "byol has no option 'centring', which dino has"),
        (
            "ir",
            {"views": 3},
            "simclr, cmc, deepcluster, swav, byol, dino have: it takes 1 view of an image, to find the image's",
        ),
        ("moco", {"views": 2}, "byol, dino have: it takes 2 views of an image, one that asks and one that is the key"),
        ("byol", {"options": {}}, "there is no option 'options'"),
        ("byol", {"epochs": 0}, "epochs must be at least 1, got 0"),
        ("byol", {"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ("byol", {"ema": 1.5}, "ema must lie between 0 and 1, got 1.5"),
        ("byol", {"kappa": -1.0}, "kappa must be positive and finite, got -1.0"),
        ("byol", {"rate": float("inf")}, "rate must be positive and finite, got inf"),
        ("byol", {"estimator": "discrete"}, "estimator must be one of joe, plugin, got 'discrete'"),
        ("byol", {"optimizer": "adamax"}, "optimizer must be one of lars, sgd, adam, adamw, got 'adamax'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_wanted(method: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?").replace("(", r"\(")):
        settings(method, given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epochs": 2.5}, "epochs must be a whole number, got 2.5"),
        ({"epochs": True}, "epochs must be a whole number, got True"),
        ({"er": "yes"}, "er must be true or false, got 'yes'"),
        ({"rate": "fast"}, "rate must be a number, got 'fast'"),
        ({"backbone": 18}, "backbone must be a word, got 18"),
    ],
)
def test_a_value_of_another_kind_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        settings("byol", given)


def test_a_config_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("er: true\nepochs: 7\nema: null\nprecision: 32\n")
    found = settings("byol", read_config(path))
    assert (found.er, found.epochs, found.options, found.precision) == (True, 7, {"ema": None}, "32")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words", "1: 2\n", "a: [\n"])
def test_a_config_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"mine\.yaml"):
        read_config(path)


def test_a_missing_config_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        read_config(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(("text", "number"), [("1e-4", 1e-4), ("3E2", 300.0), ("-2e-1", -0.2)])
def test_a_number_that_yaml_takes_for_a_word_is_one(text: str, number: float) -> None:
    assert fitting("rate", text, float) == number


def test_a_word_is_no_number() -> None:
    with pytest.raises(TypeError, match="rate must be a number, got 'fast'"):
        fitting("rate", "fast", float)
