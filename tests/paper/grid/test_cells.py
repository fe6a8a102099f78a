"""Which runs there are, what they are called, what they are given and in which order they come."""

from dataclasses import replace

import pytest

from entrec.paper.grid.names import EXPERIMENTS, wanted
from entrec.paper.grid.presets import CIFAR10, IMAGENET, PRESETS, QUICK
from entrec.paper.grid.setting import Setting
from entrec.paper.runner import Cell
from entrec.training.settings import settings


def cells(name: str, seeds: int = 1) -> list[Cell]:
    return EXPERIMENTS[name].wanted(CIFAR10).cells(CIFAR10, seeds)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_names_are_unique_and_settings_exist(name: str, preset: object) -> None:
    found = EXPERIMENTS[name].wanted(preset).cells(preset, 2)  # type: ignore[arg-type]
    assert len({cell.name for cell in found}) == len(found)
    for cell in found:
        assert settings(cell.method, cell.given).seed == int(cell.name.rpartition("seed")[2])


def test_a_name_means_the_same_run_in_every_experiment() -> None:
    seen: dict[str, Cell] = {}
    shared = 0
    for name in EXPERIMENTS:
        for cell in cells(name):
            shared += cell.name in seen
            assert seen.setdefault(cell.name, cell) == cell
    assert shared > 20


def test_a_name_says_what_differs_from_the_base() -> None:
    for setting, name in (
        (Setting("byol", True, ema=0.8), "byol-er-ema0.8"),
        (Setting("simclr", fraction=8), "simclr-batch128"),
        (Setting("simclr", fraction=8, rate_kept=True), "simclr-batch128-ratekept"),
        (Setting("dino", True, centring=False), "dino-er-nocentring"),
        (Setting("dino", True, ema=None, estimator="plugin"), "dino-er-noema-plugin"),
        (Setting("byol", ema=1.0), "byol-ema1"),
        (Setting("simclr", True, weight=0.1), "simclr-er-weight0.1"),
    ):
        assert setting.name(CIFAR10) == name


def test_claims_come_first_and_all_methods_with_a_seed_before_the_next_seed() -> None:
    names = [cell.name for cell in cells("resilience", 3)]
    first = [f"{method}{er}" for method in ("dino", "byol", "simclr") for er in ("", "-er")]
    assert names[:6] == [f"{x}-seed0" for x in first]
    assert names[6:10] == [f"{x}-ema0.8-seed0" for x in first[:4]]
    assert names[10:16] == [f"{x}-batch128-seed0" for x in first]
    assert names[16:22] == [f"{x}-seed1" for x in first]
    carried = [name for name in names if name.rpartition("-seed")[0] in {x.rpartition("-seed")[0] for x in names[:16]}]
    assert names[: len(carried)] == carried
    assert len(carried) == 48


def test_the_main_table_has_every_column() -> None:
    names = {cell.name.removesuffix("-seed0") for cell in cells("resilience")}
    for base in ("dino", "dino-er", "byol", "byol-er"):
        assert {f"{base}-{x}" for x in ("ema0.8", "ema0.6", "noema")} <= names
        assert {f"{base}-{x}" for x in ("batch256", "batch128", "batch32", "batch128-ratekept")} <= names
    assert {"simclr-batch256", "simclr-er-batch32", "simclr-er-batch128-ratekept"} <= names
    assert not {name for name in names if "simclr" in name and "ema" in name}
    assert len(names) == 4 * 8 + 2 * 5


def test_one_thing_differs_from_the_base() -> None:
    base = Setting("dino", True).given(CIFAR10)
    assert {**Setting("dino", True, ema=0.8).given(CIFAR10)} == {**base, "ema": 0.8}  # the schedule stays
    small = Setting("byol", fraction=8).given(CIFAR10)
    assert small == {**Setting("byol").given(CIFAR10), "batch_size": 128, "log_every": 64}
    kept = Setting("byol", fraction=8, rate_kept=True).given(CIFAR10)
    assert kept["rate"] * kept["batch_size"] == pytest.approx(1.2 * 1024)  # what the linear rule makes of it is the base's rate


def test_the_presets_are_the_protocols() -> None:
    assert (IMAGENET.backbone, IMAGENET.epochs, IMAGENET.batch, IMAGENET.rate) == ("resnet50", 400, 4096, 0.3)
    assert IMAGENET.batch // 8 == 512
    assert IMAGENET.options["byol"]["ema"] == 0.99
    assert [CIFAR10.batch // x for x in CIFAR10.fractions] == [256, 128, 32]
    assert (CIFAR10.backbone, CIFAR10.epochs, CIFAR10.batch, CIFAR10.rate) == ("resnet18", 25, 1024, 1.2)


def test_a_preset_without_what_the_claims_need_is_refused() -> None:
    with pytest.raises(ValueError, match="the claims need a batch of 1/8"):
        replace(QUICK, fractions=(4,))
    with pytest.raises(ValueError, match="fractions must divide the batch of 64"):
        replace(QUICK, fractions=(8, 5))


def test_what_a_user_asks_for_takes_the_presets_place() -> None:
    asked = CIFAR10.reduced(data="there/cifar10-jpeg.tar.xz", epochs=1, images=None)
    assert (asked.epochs, asked.evaluate_every, asked.images, asked.batch) == (1, 1, None, 1024)
    assert asked.facts()["data"] == "cifar10-jpeg.tar.xz"


def test_all_names_share_runs_and_those_of_claims_come_first() -> None:
    cells = wanted("all", CIFAR10).cells(CIFAR10, 2)
    names = [cell.name for cell in cells]
    assert len(names) == len(set(names))
    carrying = {x.name(CIFAR10) for name in EXPERIMENTS for x in EXPERIMENTS[name].wanted(CIFAR10).claims}
    first = [name.rpartition("-seed")[0] for name in names[: 2 * len(carrying)]]
    assert set(first) == carrying
    assert set(names) == {cell.name for name in EXPERIMENTS for cell in EXPERIMENTS[name].wanted(CIFAR10).cells(CIFAR10, 2)}


def test_the_small_encoder_changes_nothing_but_the_encoder() -> None:
    small = PRESETS["cifar10-tiny"]
    differs = {key for key, value in small.facts().items() if CIFAR10.facts()[key] != value}
    assert differs == {"name", "backbone", "given"}
    assert {key for key in CIFAR10.given if small.given.get(key) != CIFAR10.given[key]} == {"compile"}
