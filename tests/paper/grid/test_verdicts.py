"""Claims from run folders in which runs diverged, failed in another way, are damaged or are few."""

from pathlib import Path

import pytest

from entrec.paper.grid import begin, render
from entrec.paper.grid.claims import Claim
from entrec.paper.grid.setting import Setting
from entrec.training.loop import DivergedError
from tests.paper.grid.runs import TINY, ended, failed

NO_ROOM, NO_NUMBER = OSError("No space left on device"), DivergedError("the loss is nan at step 3")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    begin(tmp_path, "resilience", TINY)
    return tmp_path


def claim(out: Path, name: str, words: str) -> Claim:
    (one,) = (x for x in render(out, name).claims if words in x.statement)
    return one


def table(out: Path, name: str) -> str:
    render(out, name)
    return (out / name / "table.md").read_text()


def at_low_ema(runs: Path, own: float, er: float) -> None:
    for setting, accuracy in ((Setting("byol"), 0.8), (Setting("byol", True), 0.8)):
        ended(runs, setting, accuracy)
    ended(runs, Setting("byol", True, ema=0.8), er)
    ended(runs, Setting("byol", ema=0.8), own)


def test_a_run_without_memory_is_no_collapse(out: Path) -> None:
    for setting in (Setting("byol"), Setting("byol", True), Setting("byol", True, ema=0.8)):
        ended(out / "runs", setting)
    failed(out / "runs", Setting("byol", ema=0.8), NO_ROOM)
    found = claim(out, "resilience", "at EMA 0.8")
    assert found.word == "failed"
    assert found.numbers == "DINO: not run; BYOL: failed: OSError: No space left on device"


def test_an_original_that_diverges_is_one(out: Path) -> None:
    for setting in (Setting("byol"), Setting("byol", True), Setting("byol", True, ema=0.8)):
        ended(out / "runs", setting)
    failed(out / "runs", Setting("byol", ema=0.8), NO_NUMBER)
    assert claim(out, "resilience", "at EMA 0.8").word == "holds in part (1 seed)"


@pytest.mark.parametrize(("error", "state"), [(NO_ROOM, "failed"), (NO_NUMBER, "not decided")])
def test_the_lens_gets_no_credit_for_a_run_that_it_never_saw(out: Path, error: Exception, state: str) -> None:
    ended(out / "runs", Setting("simclr", True), 0.7)
    failed(out / "runs", Setting("simclr", True, weight=100.0), error)
    found = claim(out, "weights", "the lens says so")
    assert found.word == state
    assert ("diverged before the lens looked" in found.numbers) == (state == "not decided")
    # That nothing was learnt is shown by numbers that are none any more, and not by a full disk.
    assert claim(out, "weights", "poor performance").word == ("failed" if error is NO_ROOM else "holds (1 seed)")


@pytest.mark.parametrize(("verdict", "control", "state"), [
    ("collapsed", "healthy", "so"), ("low rank", "healthy", "not so"), ("collapsed", "collapsed", "not so")
])  # fmt: skip
def test_a_collapse_is_one_by_its_word_that_the_control_has_not(out: Path, verdict: str, control: str, state: str) -> None:
    ended(out / "runs", Setting("simclr", True), 0.7, verdict=control)
    ended(out / "runs", Setting("simclr", True, weight=100.0), 0.2, verdict=verdict)
    ended(out / "runs", Setting("dino"), 0.7, verdict=control)
    ended(out / "runs", Setting("dino", centring=False), 0.2, verdict=verdict)
    assert claim(out, "weights", "the lens says so").parts[0].state == state
    assert claim(out, "dynamics", "Without centring").parts[0].state == state


def test_without_its_control_no_collapse_is_claimed(out: Path) -> None:
    ended(out / "runs", Setting("dino", centring=False), 0.2, verdict="collapsed")
    assert claim(out, "dynamics", "Without centring").parts[0].state == "not run"


def test_er_that_diverges_in_a_seed_does_not_train(out: Path) -> None:
    ended(out / "runs", Setting("dino", True, centring=False), 0.4)
    failed(out / "runs", Setting("dino", True, centring=False), NO_NUMBER, seed=1)
    assert claim(out, "dynamics", "Without centring").parts[1].state == "not so"


def test_a_stray_seed_does_not_make_a_claim_stand_on_several(out: Path) -> None:
    at_low_ema(out / "runs", own=0.5, er=0.7)
    ended(out / "runs", Setting("dino"), 0.7, seed=1)
    text = table(out, "resilience")
    assert "**not decided (1 seed)**" in text
    assert "**holds" not in text
    assert "With a single seed" in text


def test_entropies_that_rise_in_one_seed_decide_nothing(out: Path) -> None:
    for seed, rise in enumerate((5.0, 0.1, 0.1)):
        ended(out / "runs", Setting("byol"), seed=seed, entropy=(-5.0, -5.0 + rise))
    assert claim(out, "dynamics", "BYOL's entropy").word == "not decided"


def test_a_bound_that_was_looked_at_once_neither_rises_nor_stays(out: Path) -> None:
    folder = ended(out / "runs", Setting("cmc"), epochs=1)
    lines = (folder / "metrics.csv").read_text().splitlines()
    (folder / "metrics.csv").write_text("\n".join(lines[:4]) + "\n")
    found = claim(out, "mi-relation", "The ER bound rises")
    assert found.word == "not decided"
    assert "CMC: a single look: 1.00" in found.numbers


def test_a_bound_that_is_missing_is_called_undefined_for_codes_alone(out: Path) -> None:
    for method in ("cmc", "swav"):
        folder = ended(out / "runs", Setting(method))
        text = (folder / "metrics.csv").read_text().replace("held_out_infonce_bound", "another")
        (folder / "metrics.csv").write_text(text)
    text = table(out, "mi-relation")
    assert "| CMC | yes | not measured |" in text
    assert "| SwAV | no | not defined for codes |" in text


def test_a_drop_of_a_variation_that_was_never_run_is_not_run(out: Path) -> None:
    ended(out / "runs", Setting("byol"), 0.7)
    failed(out / "runs", Setting("byol"), NO_NUMBER, seed=1)
    failed(out / "runs", Setting("byol", ema=0.8), NO_NUMBER, seed=1)
    row = next(line for line in table(out, "resilience").splitlines() if line.startswith("| BYOL |"))
    assert row.startswith("| BYOL | 70.0, failed in 1 of 2 [73.42] | not run [23.65] | not run | failed in 1 of 1 [2.63] |")


def test_runs_over_several_devices_are_said_to_be(out: Path) -> None:
    folder = ended(out / "runs", Setting("byol"))
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "devices: 8\n")
    (folder / "made.json").write_text('{"device": "a card"}')
    assert "1 run, 1.0 minutes of training in all: 8 x a card;" in table(out, "resilience")
