"""Tables, claims and figures from run folders made by hand."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from entrec.cli import app
from entrec.estimators import VonMisesFisher
from entrec.paper.grid import LostError, begin, render
from entrec.paper.grid.claims import Claim
from entrec.paper.grid.curves import by_epoch, floor
from entrec.paper.grid.names import EXPERIMENTS
from entrec.paper.grid.published import BOUNDS, DINO, EXTENDED, MAIN
from entrec.paper.grid.setting import Setting
from entrec.paper.grid.trials import Pooled
from entrec.training.loop import DivergedError
from tests.paper.grid.runs import TINY, ended, failed


@pytest.fixture
def out(tmp_path: Path) -> Path:
    begin(tmp_path, "resilience", TINY)
    return tmp_path


def read(out: Path, name: str) -> tuple[dict[str, Claim], str, dict[str, Any]]:
    """Claims by what they begin with, table.md and results.json."""
    found = render(out, name)
    assert all(path.is_file() and path.with_suffix(".svg").is_file() for path, _ in found.figures)
    table = (out / name / "table.md").read_text()
    return {claim.statement: claim for claim in found.claims}, table, json.loads((out / name / "results.json").read_text())


def claim(found: dict[str, Claim], words: str) -> Claim:
    (one,) = (x for statement, x in found.items() if words in statement)
    return one


def resilient(runs: Path, er_drop: float, seeds: int = 3) -> None:
    """The original drops by 20 points everywhere, ER by so many; seeds differ by a point."""
    for seed in range(seeds):
        for method in ("dino", "byol", "simclr"):
            for er, drop in ((False, 20.0), (True, er_drop)):
                for change in ({}, {"fraction": 8}, *([{"ema": 0.8}] if method != "simclr" else [])):
                    accuracy = 70 + seed - (drop if change else 0)
                    ended(runs, Setting(method, er, **change), accuracy / 100, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_runs_nothing_is_guessed(out: Path, name: str) -> None:
    found, table, results = read(out, name)
    words = {statement: x.word for statement, x in found.items()}
    words.pop("I(Z1; W2) <= I(Z1; Z2)", None)  # which needs no run
    assert set(words.values()) == {"not run"}
    assert "not run" in table
    assert "nan" not in table
    assert {setting["state"] for setting in results["settings"]} == {"not run"}


def test_drops_and_deviations_of_the_main_table(out: Path) -> None:
    resilient(out / "runs", er_drop=2.0)
    found, table, results = read(out, "resilience")
    assert "| DINO | 71.0 ± 1.0 (3) [75.59] | 20.0 ± 0.0 (3) [6.76] | not run | 20.0 ± 0.0 (3) [8.25] | not run |" in table
    assert "| SimCLR+ER | 71.0 ± 1.0 (3) [70.86] | 2.0 ± 0.0 (3) [1.01] | not run | - | - |" in table
    assert claim(found, "ER drops less at EMA 0.8").word == "holds"
    assert claim(found, "ER drops less at 1/8").word == "holds"
    assert "BYOL: 20.00 ± 0.00 (3) without, 2.00 ± 0.00 (3) with ER, 18.00 ± 0.00 (3) less" in claim(found, "at EMA").numbers
    assert "48 runs, 48.0 minutes of training" in table
    assert results["settings"][0]["runs"]["2"]["linear_top1"] == 0.72
    assert results["preset"]["batch"] == 32


def test_a_claim_that_does_not_hold_is_said_so(out: Path) -> None:
    resilient(out / "runs", er_drop=25.0, seeds=2)
    found, table, _ = read(out, "resilience")
    assert claim(found, "ER drops less at EMA 0.8").word == "does not hold here (2 seeds)"
    numbers = "DINO: 20.00 ± 0.00 (2) without, 25.00 ± 0.00 (2) with ER, -5.00 ± 0.00 (2) less"
    assert f"| **does not hold here (2 seeds)** | {numbers}" in table


@pytest.mark.parametrize("er_drop", [2.0, 25.0])
def test_a_single_seed_decides_no_claim_of_a_difference(out: Path, er_drop: float) -> None:
    resilient(out / "runs", er_drop, seeds=1)
    found, table, results = read(out, "resilience")
    assert {x.word for x in found.values()} == {"not decided (1 seed)"}
    assert f"| **not decided (1 seed)** | DINO: 20.00 without, {er_drop:.2f} with ER, {20 - er_drop:.2f} less" in table
    assert {x["verdict"] for x in results["claims"]} == {"not decided (1 seed)"}
    assert "With a single seed, which some settings of the claims have, no difference can be told from chance" in table


def test_a_failed_cell_is_named_with_its_reason(out: Path) -> None:
    for seed in (0, 1):
        ended(out / "runs", Setting("byol"), 0.7, seed)
    ended(out / "runs", Setting("byol", fraction=8), 0.5, 0)
    failed(out / "runs", Setting("byol", fraction=8), DivergedError("NaN at step 3"), 1)
    failed(out / "runs", Setting("byol", ema=0.8), MemoryError("no room"), 0)
    _, table, results = read(out, "resilience")
    assert "Failed: byol-ema0.8-seed0 (MemoryError: no room); byol-batch4-seed1 (NaN at step 3)." in table
    row = next(line for line in table.splitlines() if line.startswith("| BYOL |"))
    assert "20.0, failed in 1 of 2 [23.65]" in row
    assert {x["name"]: x["state"] for x in results["settings"]}["byol-ema0.8"] == "failed"


def test_dynamics_say_which_entropies_rise(out: Path) -> None:
    runs = out / "runs"
    for fraction in (1, 8):
        for method in ("simclr", "byol"):
            ended(runs, Setting(method, True, fraction), entropy=(-5.0, -4.0))
        ended(runs, Setting("dino", True, fraction), entropy=(6.9, 6.8))  # of ln 1024 = 6.93
    ended(runs, Setting("byol"), entropy=(-4.0, -4.05))
    found, table, _ = read(out, "dynamics")
    assert claim(found, "BYOL's entropy does not rise").word == "holds (1 seed)"
    assert claim(found, "every ER run").word == "holds in part (1 seed)"  # one is not run
    ended(runs, Setting("dino", True, centring=False), entropy=(6.9, 6.0))
    told = claim(read(out, "dynamics")[0], "every ER run")
    assert told.word == "holds in part (1 seed)"
    assert "DINO+ER, no centring (not so): -0.90 nats" in told.numbers
    assert "SimCLR+ER at 1/8 of the batch (so): +1.00 nats" in told.numbers
    assert "| BYOL | 32 | -0.05 | +1.00 | +0.95 | 0.80 | 50.0 | healthy |" in table


def test_an_entropy_that_falls_first_and_rises_then_is_said_to_do_both(out: Path) -> None:
    folder = ended(out / "runs", Setting("byol"), entropy=(-4.0, -4.5))
    text = (folder / "metrics.csv").read_text()
    first = next(line for line in text.splitlines() if line.startswith("10,0,,,-4.5"))
    (folder / "metrics.csv").write_text(text.replace(first, first.replace("-4.5", "-6.0")))  # the mean of its epoch is -5
    found = claim(read(out, "dynamics")[0], "BYOL's entropy does not rise")
    assert found.word == "holds in part (1 seed)"
    assert found.numbers.startswith("from the untrained network (so): -0.50 nats; from the first epoch's mean (not so): +0.50")


def test_an_er_run_whose_entropy_falls_is_found_out(out: Path) -> None:
    ended(out / "runs", Setting("byol", True), entropy=(-4.0, -5.0))
    ended(out / "runs", Setting("dino", True), entropy=(6.9, 6.0))
    ended(out / "runs", Setting("byol"), entropy=(-5.0, -4.0))
    found, _, _ = read(out, "dynamics")
    assert claim(found, "BYOL's entropy does not rise").word == "does not hold here (1 seed)"
    assert claim(found, "every ER run").word == "does not hold here (1 seed)"


@pytest.mark.parametrize(
    ("own", "er", "word"), [("collapsed", "healthy", "holds"), ("weak", "collapsed", "does not hold here")]
)
def test_without_centring(out: Path, own: str, er: str, word: str) -> None:
    for seed in range(2):
        ended(out / "runs", Setting("dino"), 0.5, seed)
        ended(out / "runs", Setting("dino", centring=False), 0.5 if word != "holds" else 0.1, seed, verdict=own)
        ended(out / "runs", Setting("dino", True, centring=False), 0.4, seed, verdict=er)
    assert claim(read(out, "dynamics")[0], "Without centring").verdict == word


def test_a_frozen_teacher_learns_less_at_a_high_entropy(out: Path) -> None:
    for seed in range(2):
        for method in ("byol", "dino"):
            ended(out / "runs", Setting(method), 0.7, seed, held_out_entropy=0.6)
        ended(out / "runs", Setting("byol", ema=1.0), 0.4, seed, held_out_entropy=0.9)
        ended(out / "runs", Setting("dino", ema=1.0), 0.4, seed, held_out_entropy=0.1)
    found = claim(read(out, "dynamics")[0], "frozen random teacher")
    assert [part.state for part in found.parts] == ["so", "not so"]


def test_codes_are_measured_against_ln_m(out: Path) -> None:
    ended(out / "runs", Setting("swav"), entropy=(math.log(64), 0.95 * math.log(64)))
    ended(out / "runs", Setting("deepcluster"), entropy=(4.0, 0.5 * math.log(100)))
    found, table, _ = read(out, "clustering")
    assert "| SwAV | 64 | 1.000 | 0.950 | 0.950 | 0.800 | 50.0 |" in table
    assert [part.state for part in found.popitem()[1].parts] == ["so", "not so", "not run"]


def test_a_large_weight_collapses_and_a_small_one_learns_little(out: Path) -> None:
    def words(seed: int) -> list[str]:
        for weight, accuracy, verdict in ((0.1, 0.3, "weak"), (1.0, 0.7, "healthy"), (100.0, 0.2, "collapsed")):
            ended(out / "runs", Setting("simclr", True, weight=weight), accuracy, seed, verdict=verdict)
        return [x.word for x in read(out, "weights")[0].values()]

    # What the lens said of a run is so of that run; how much better one is than another may be chance.
    assert words(seed=0) == ["holds (1 seed)", "not decided (1 seed)", "not decided (1 seed)"]
    assert "| 100 | +1.00 | +1.00 | 0.80 | 20.0 | collapsed |" in read(out, "weights")[1]
    assert words(seed=1) == ["holds (2 seeds)"] * 3


def test_estimators_that_differ_by_more_than_a_point(out: Path) -> None:
    for setting, accuracy in ((Setting("dino", True), 0.7), (Setting("dino", True, estimator="plugin"), 0.705),
                              (Setting("simclr", True), 0.7), (Setting("simclr", True, estimator="joe"), 0.75)):  # fmt: skip
        for seed in range(3):
            ended(out / "runs", setting, accuracy, seed)
    found, table, _ = read(out, "estimators")
    assert claim(found, "discrete and a continuous").word == "holds"
    assert claim(found, "Joe").word == "does not hold here"
    assert "| DINO+ER | continuous | 70.50 ± 0.00 (3) [73.63] | not run [2.67] |" in table


def test_the_extended_table_stands_beside_the_papers(out: Path) -> None:
    for setting in (Setting("cmc"), Setting("byol", True, ema=None), Setting("byol", True)):
        ended(out / "runs", setting, 0.6 if setting.ema is None else 0.7)
    found, table, _ = read(out, "extended")
    assert "| CMC | no | 70.0 [69.95] | not run [3.06] |" in table
    assert "| BYOL+ER | no | 60.0 [71.70] | not run [3.20] |" in table
    assert [part.state for part in claim(found, "needs the EMA").parts] == ["not run", "not decided"]
    for setting, accuracy in ((Setting("byol", True, ema=None), 0.6), (Setting("byol", True), 0.71)):
        ended(out / "runs", setting, accuracy, seed=1)
    assert [part.state for part in claim(read(out, "extended")[0], "needs the EMA").parts] == ["not run", "so"]


def test_bounds_that_rise_stay_and_fall(out: Path) -> None:
    for method, bounds in (("cmc", (1.0, 2.0)), ("moco", (1.0, 1.02)), ("byol", (2.0, 1.0)), ("swav", (0.5, 1.0))):
        ended(out / "runs", Setting(method), bounds=bounds)
    found, table, results = read(out, "mi-relation")
    assert "| CMC | yes | rises: 0.50 to 1.00 | (yes) | rises: 1.00 to 2.00 | - |" in table
    assert "| MoCo | (yes) | stays: 0.50 to 0.51 | (yes) | stays: 1.00 to 1.02 |" in table
    assert "| SwAV | no | not defined for codes | yes | rises: 0.50 to 1.00 | - |" in table
    assert "| BYOL | no | falls: 1.00 to 0.50 | (yes) | falls: 2.00 to 1.00 | not max. entropy |" in table
    assert claim(found, "The ER bound rises").word == "holds in part (1 seed)"
    assert claim(found, "I(Z1; W2)").word == "holds"
    assert all(x["code"] < x["projections"] for x in results["information"])


def test_rendering_twice_gives_the_same_files(out: Path) -> None:
    resilient(out / "runs", er_drop=2.0, seeds=1)
    before: dict[str, bytes] = {}
    for _ in range(2):
        render(out, "resilience")
        files = {path.name: path.read_bytes() for path in (out / "resilience").iterdir()}
        before = before or files
    assert files == before
    assert set(files) == {"table.md", "results.json", "resilience.png", "resilience.svg"}


def test_results_of_runs_that_are_gone_are_not_written_over(out: Path) -> None:
    resilient(out / "runs", er_drop=2.0, seeds=2)
    render(out, "resilience")
    before = {path.name: path.read_bytes() for path in (out / "resilience").iterdir()}
    shutil.rmtree(out / "runs" / "dino-seed1")
    with pytest.raises(ValueError, match=r"results\.json tells of runs that are not in .*runs any more \(dino-seed1\)"):
        render(out, "resilience")
    assert {path.name: path.read_bytes() for path in (out / "resilience").iterdir()} == before
    (out / "resilience" / "results.json").unlink()
    render(out, "resilience")
    (out / "resilience" / "results.json").write_text("{")  # of which nothing can be lost
    render(out, "resilience")


def test_entropies_are_shown_above_a_single_point(out: Path) -> None:
    ended(out / "runs", Setting("simclr"))
    ended(out / "runs", Setting("dino"))
    pool = Pooled(out / "runs", TINY)
    assert floor(pool("dino")) == 0
    assert floor(pool("simclr")) == pytest.approx(-float(VonMisesFisher(10.0).log_normalizer(64)) - 10)


def test_curves_begin_untrained_and_go_on_with_means_of_epochs() -> None:
    rows: list[dict[str, float]] = [
        {"step": 1, "epoch": 0, "x": 1.0},
        {"step": 5, "epoch": 0, "x": 2.0},
        {"step": 6, "epoch": 0},
    ]
    rows += [{"step": 9, "epoch": 1, "x": 4.0}]
    assert by_epoch(rows, "x") == ([0.0, 0.5, 1.5], [1.0, 1.5, 4.0])


def test_the_published_numbers_are_the_papers() -> None:
    """Sums of each column, from its tables."""
    assert sum(row.accuracy for row in MAIN.values()) == pytest.approx(435.43)
    assert sum(row.batch for row in MAIN.values()) == pytest.approx(38.29)
    assert sum(row.ema or 0 for row in MAIN.values()) == pytest.approx(12.21)
    assert sum(row.accuracy for row in EXTENDED.values()) == pytest.approx(644.31)
    assert sum(row.batch for row in EXTENDED.values()) == pytest.approx(52.19)
    assert [tuple(row)[:2] for row in DINO.values()] == [(75.28, 8.63), (73.39, 2.35), (73.63, 2.67)]
    assert [method for method, row in BOUNDS.items() if row.er == "yes"] == ["deepcluster", "swav"]


def test_a_damaged_run_is_not_one_that_is_gone(out: Path) -> None:
    resilient(out / "runs", er_drop=2.0, seeds=2)
    render(out, "resilience")
    (out / "runs" / "dino-seed1" / "summary.json").write_text("{")
    render(out, "resilience")
    assert "dino-seed1 (damaged" in (out / "resilience" / "table.md").read_text()


def test_one_table_that_would_lose_results_does_not_hold_up_the_others(out: Path) -> None:
    resilient(out / "runs", er_drop=2.0, seeds=1)
    for name in ("resilience", "dynamics"):
        render(out, name)
    (out / "dynamics" / "results.json").unlink()
    shutil.rmtree(out / "runs" / "dino-ema0.8-seed0")  # of which the dynamics say nothing
    result = CliRunner().invoke(app, ["paper", "all", "--out", str(out), "--render"])
    assert result.exit_code == 2
    assert "runs any more (dino-ema0.8-seed0)" in " ".join(result.output.split())
    assert (out / "dynamics" / "results.json").exists()


def test_what_would_lose_results_is_refused_before_any_run(out: Path) -> None:
    resilient(out / "runs", er_drop=2.0, seeds=1)
    render(out, "resilience")
    shutil.rmtree(out / "runs" / "dino-ema0.8-seed0")
    with pytest.raises(LostError, match=r"dino-ema0\.8-seed0"):
        begin(out, "resilience", TINY, only=["byol-*"])
    assert "dino-ema0.8-seed0" in [cell.name for cell in begin(out, "resilience", TINY, only=["dino-*"])]  # made again
