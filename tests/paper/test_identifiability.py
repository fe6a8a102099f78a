"""The tables on identifiability: their numbers, cells that are run once, and what stands beside the paper's scores."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from typer.testing import Result as Called

from entrec.cli import app
from entrec.cli.edge import console
from entrec.estimators.density import log_kernel
from entrec.identifiability import ContentStyle, Isolation, Point, Result, Setting
from entrec.identifiability import identify as run_setting
from entrec.paper import identifiability as experiment
from entrec.paper.identifiability import QUICK, Scale, cells, grid, kept, make, render
from entrec.paper.identifiability.figure import height, score_at
from entrec.paper.identifiability.published import AFFINE, PERMUTATION

TINY = Scale(steps=20, batch=16, width=5, dim=2, draws=5, rate=1e-3)


def result(setting: Setting, r2: float = 0.995, diverged: int | None = None) -> Result:
    curve = [Point(step, 5.0 - step / 10, r2 * step / 20, 0.9) for step in range(1, 21)]
    return Result(setting, math.nan if diverged else r2, math.nan if diverged else 0.9, 0.8, 0.7, diverged, curve, 60.0, "CPU")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings that were run, for which scores come out of nothing."""
    seen: list[Any] = []

    def identify(setting: Setting, device: str, progress: Callable[[Point], None], resume: Path) -> Result:
        seen.append(setting)
        found = result(setting, diverged=10 if setting.objective == "er" and setting.bandwidth == 0.1 else None)
        progress(found.curve[-1])
        return found

    def isolate(setting: ContentStyle, device: str, progress: Callable[[int, float], None], resume: Path) -> Isolation:
        seen.append(setting)
        progress(20, 1.0)
        return Isolation(setting, (0.9, 0.95), (0.01, 0.02), None, [(20, 1.0)], 60.0, "CPU")

    monkeypatch.setattr(grid, "identify", identify)
    monkeypatch.setattr(grid, "isolate", isolate)
    monkeypatch.setattr(experiment, "QUICK", TINY)
    return seen


def call(*words: str) -> Called:
    return CliRunner().invoke(app, ["paper", "identifiability", *words])


def test_the_published_scores_are_the_papers() -> None:
    """Sums of each column, from its tables; and some of the numbers one by one."""
    for rows, sums in ((AFFINE, (1180.83, 1164.26, 1061.47)), (PERMUTATION, (828.48, 823.88, 760.83))):
        assert tuple(sum(row.scores[column] for row in rows) for column in range(3)) == pytest.approx(sums)
    assert AFFINE[0].scores == (99.42, 89.31, 98.94)
    assert AFFINE[5][:5] == ("box", "uniform", "laplace:0.05", "unbounded", "normal")
    assert (AFFINE[5].scores[2], AFFINE[5].marks) == (17.30, ("", "", "†"))
    assert (AFFINE[11].scores, AFFINE[11].marks) == ((95.26, 89.89, 89.74), ("*", "", ""))
    assert PERMUTATION[1][2:6] == ("gennorm:3:0.05", "box", "gennorm:3", (99.90, 99.90, 95.51))
    assert [i for i, row in enumerate(PERMUTATION, 1) if row.marks == ("*", "", "")] == [7, 10]


def test_the_cells_are_the_papers_protocol() -> None:
    found = cells(["affine", "permutation"], (), 1, Scale())
    assert len(found) == 66
    for cell in found:
        assert isinstance(cell.setting, Setting)
        sizes = (
            cell.setting.dim,
            cell.setting.batch,
            cell.setting.steps,
            cell.setting.rate,
            cell.setting.width,
            cell.setting.draws,
        )
        assert sizes == (10, 6144, 300_000, 1e-4, 50, 25_000)
    first = {cell.column: cell.setting for cell in found if cell.table == "affine" and cell.row == 2}
    assert first["infonce"] == Setting(conditional="vmf:10", objective="infonce")
    assert first["er-h10"] == Setting(conditional="vmf:10", objective="er", bandwidth=0.1)
    assert first["er-h1"] == Setting(conditional="vmf:10", objective="er", bandwidth=1.0)


def test_h_multiplies_the_logarithm_of_the_models_density() -> None:
    z1, z2 = torch.rand(2, 5, 10, generator=torch.Generator().manual_seed(0)).unbind()
    for cell in cells(["affine", "permutation"], (), 1, Scale()):
        assert isinstance(cell.setting, Setting)
        if cell.setting.objective == "er":
            q, h = cell.setting.density, float(cell.column.removeprefix("er-h"))
            ours = log_kernel(q.with_bandwidth(cell.setting.bandwidth), z2, z1)
            torch.testing.assert_close(ours, h * log_kernel(q, z2, z1), rtol=1e-5, atol=1e-5)


def test_rows_that_test_the_theorem_come_first_and_seeds_after_each_other() -> None:
    found = cells(["affine", "permutation"], (), 2, TINY)
    early = [cell.row <= 6 for cell in found]
    assert early == sorted(early, reverse=True)
    assert [cell.seed for cell in found if cell.row <= 6] == sorted(cell.seed for cell in found if cell.row <= 6)
    assert all(cell.setting.seed == cell.seed for cell in found)


def test_content_and_style_have_as_many_outputs_as_content_and_then_more() -> None:
    first, second, wide, theorem = (cell.setting for cell in cells(["content-style"], (), 1, Scale()))
    assert first == ContentStyle(content=5, style=5)
    assert second == ContentStyle(content=5, style=5, outputs=10)
    assert theorem == ContentStyle(content=5, style=5, bandwidth=1.0, kernel=0.1)  # its q; its entropy as well as it can be had
    assert wide == ContentStyle(content=5, style=5, bandwidth=1.0)
    assert QUICK.dim == 3


def test_cells_that_are_there_are_not_run_again(tmp_path: Path, ran: list[Any]) -> None:
    make(tmp_path, cells(["affine"], [2], 1, TINY), TINY, "cpu")
    assert len(ran) == 3
    make(tmp_path, cells(["affine"], [2, 3], 2, TINY), TINY, "cpu")
    assert len(ran) == 12  # the other seed of row 2, and both of row 3
    assert len(kept(tmp_path, TINY)) == 12
    assert {cell.name for cell in kept(tmp_path, TINY)} == {path.stem for path in (tmp_path / "cells").iterdir()}


def test_one_that_was_stopped_leaves_what_it_had(tmp_path: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = vars(grid)["identify"]
    wanted = cells(["permutation"], [1], 1, TINY)

    def stopping(setting: Setting, *more: Any) -> Result:
        if len(ran) == 2:
            raise KeyboardInterrupt
        found: Result = whole(setting, *more)
        return found

    monkeypatch.setattr(grid, "identify", stopping)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, wanted, TINY, "cpu")
    monkeypatch.setattr(grid, "identify", whole)
    make(tmp_path, wanted, TINY, "cpu")
    assert len(ran) == 3


def test_a_cell_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    wanted, said = cells(["affine"], [2], 1, TINY)[:1], list[str]()

    def stopping(part: str) -> None:
        said.append(part)
        if "step 12" in part:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "two", wanted, TINY, "cpu", stopping)
    assert [path.stem for path in (tmp_path / "two" / "unfinished").iterdir()] == [wanted[0].name]
    longer = replace(TINY, steps=30)
    with pytest.raises(ValueError, match=r"unfinished experiment of another setting \(steps 20 there, 30 now\)"):
        make(tmp_path / "two", cells(["affine"], [2], 1, longer), longer, "cpu", jobs=2)
    assert not (tmp_path / "two" / "cells").exists()  # refused before any of the three was run
    make(tmp_path / "two", wanted, TINY, "cpu", said.append)
    make(tmp_path / "one", wanted, TINY, "cpu")
    one, two = (kept(tmp_path / name, TINY)[wanted[0]] for name in ("one", "two"))
    assert (two.curve, getattr(two, "r2", None)) == (one.curve, getattr(one, "r2", None))
    assert sum("step 5," in part for part in said) == 1
    assert not list((tmp_path / "two" / "unfinished").iterdir())


def test_cells_made_at_a_time_are_those_made_one_by_one(tmp_path: Path) -> None:
    wanted = cells(["affine"], [2], 1, TINY)
    make(tmp_path / "one", wanted, TINY, "cpu")
    make(tmp_path / "two", wanted, TINY, "cpu", jobs=2)
    one, two = ({cell: (x.r2, x.mcc) for cell, x in kept(tmp_path / name, TINY).items()} for name in ("one", "two"))  # type: ignore[union-attr]
    assert one == two
    assert len(one) == 3


def test_a_process_that_dies_is_named_and_loses_no_other_cell(tmp_path: Path) -> None:
    wanted = cells(["affine"], [2], 1, TINY)
    (tmp_path / "cells" / f"{wanted[1].name}.json").mkdir(parents=True)  # where nothing can be written
    with pytest.raises(ChildProcessError, match=f"{wanted[1].name} .its process ended with status 1.; the others are there"):
        grid._make_in_processes(tmp_path, wanted, "cpu", lambda part: None, 2, float("inf"))
    assert sorted(path.stem for path in (tmp_path / "cells").iterdir() if path.is_file()) == [wanted[2].name, wanted[0].name]


def test_nothing_is_begun_when_time_is_over(tmp_path: Path, ran: list[Any]) -> None:
    make(tmp_path, cells(["affine"], [2], 1, TINY), TINY, "cpu", minutes=0)
    assert ran == []


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (Scale(steps=21, batch=16, width=5, dim=2, draws=5, rate=1e-3), "steps 20 there, 21 now"),
        (Scale(steps=20, batch=32, width=5, dim=2, draws=5, rate=1e-3), "batch 16 there, 32 now"),
        (Scale(), "dim 2 there, 10 now"),
    ],
)
def test_a_folder_of_another_configuration_is_refused_before_anything_is_run(
    tmp_path: Path, ran: list[Any], scale: Scale, said: str
) -> None:
    make(tmp_path, cells(["affine"], [2], 1, TINY), TINY, "cpu")
    with pytest.raises(ValueError, match=rf"affine-02-\S+ is of another setting \(.*{said}.*choose another folder"):
        make(tmp_path, cells(["affine"], [1, 2], 1, scale), scale, "cpu")
    assert len(ran) == 3


def test_other_rows_may_be_longer_but_of_no_other_size(tmp_path: Path, ran: list[Any]) -> None:
    make(tmp_path, cells(["affine"], [2], 1, TINY), TINY, "cpu")
    longer = Scale(**{**TINY.given(), "steps": 50, "rate": 3e-4, "schedule": "cosine"})
    make(tmp_path, cells(["affine"], [1], 1, longer), longer, "cpu")
    text = render(tmp_path, ["affine"], TINY, ["command"]).read_text()
    long, short = "--steps 50 --rate 0.0003 --schedule cosine", "--steps 20 --rate 0.001 --schedule constant"
    lines = [line for line in text.splitlines() if line.startswith("    command")]
    assert lines[0].startswith(f"    command {long} --precision 32 --only 'affine-01-infonce-*' --only")
    assert lines[0].endswith("  # a")
    assert lines[1].startswith(f"    command {short} --precision 32 --only 'affine-02-infonce-*' --only")
    assert lines[1].endswith("  # b")
    assert "99.50 (99.42; +0.08) a | diverged in 1 of 1 (89.31) a | 99.50 (98.94; +0.56) a |" in text
    assert "99.50 (99.86; -0.36) b |" in text
    assert "letter" in text
    wider = Scale(**{**TINY.given(), "width": 10})
    with pytest.raises(ValueError, match="width 5 there, 10 now"):
        make(tmp_path, cells(["affine"], [3], 1, wider), wider, "cpu")
    with pytest.raises(ValueError, match="width 5 there, 10 now"):
        render(tmp_path, ["affine"], wider, ["command"])


def test_the_table_stands_beside_the_papers(tmp_path: Path, ran: list[Any]) -> None:
    make(tmp_path, cells(["affine", "content-style"], [2], 2, TINY), TINY, "cpu")
    text = render(tmp_path, ["affine"], TINY, ["entrec paper identifiability"], ["--row 2"]).read_text()
    lines = {line.split(" | ")[0]: line for line in text.partition("## Content")[0].splitlines() if line.startswith("| ")}
    assert "| 99.50 ± 0.00 (99.86; -0.36) | diverged in 2 of 2 (99.87) | 99.50 ± 0.00 (99.80; -0.30) |" in lines["| 2"]
    assert "| not run (99.60) | not run (99.53) | not run (71.47†) |" in lines["| 5"]
    assert "letter" not in text  # all were trained alike
    assert r"not run (89.85\*)" in lines["| 11"]
    assert (
        "Diverged: affine-02-er-h10-seed0 (by step 10, precision 32), affine-02-er-h10-seed1 (by step 10, precision 32)."
        in text
    )
    assert (
        "    entrec paper identifiability --steps 20 --rate 0.001 --schedule constant --precision 32 --row 2\n" in text
    )  # content-style was trained in the same way
    assert "2 latents, batch 16, encoder 5 times as wide" in text
    assert "**Reduced size**" in text
    assert "CPU; precision 32; seeds 0, 1." in text
    assert (
        "| 1 | 1 | 1 | 1 | 100 | 100 | not run | not run | not run | not run |" in text
    )  # content-style was run too, but not row 1
    assert "| 2 | 1 | 1 | 2 | 100 | 100 | 90.0 ± 0.0 | 95.0 ± 0.0 | 1.0 ± 0.0 | 2.0 ± 0.0 |" in text
    assert "| 4 | 1 | 1 | 1 | 1 | 100 | not run |" in text
    assert "## Permutation" not in text
    for suffix in ("png", "svg"):
        assert (tmp_path / f"affine-curves.{suffix}").stat().st_size > 1000
    drawn = (tmp_path / "affine-curves.svg").read_bytes()
    render(tmp_path, ["affine"], TINY, ["command"])
    assert (tmp_path / "affine-curves.svg").read_bytes() == drawn  # the same file from the same numbers


@given(score=st.floats(0, 99.98))
def test_a_score_is_as_high_as_what_it_lacks_is_small(score: float) -> None:
    assert float(score_at(height(score))) == pytest.approx(score, abs=1e-8)
    assert float(height(score)) == pytest.approx(-math.log10(1 - score / 100), abs=1e-9)
    assert float(height(99.99)) == float(height(100.0)) == float(height(100.1)) > float(height(score))


def test_seeds_that_diverged_are_counted_and_not_averaged() -> None:
    from entrec.paper.identifiability.render import _beside

    assert _beside([99.0, math.nan, 98.0], 99.5, "*") == r"98.50 ± 0.71, diverged in 1 of 3 (99.50\*; -1.00)"
    assert _beside([], 99.5, "") == "not run (99.50)"


def test_the_papers_own_protocol_is_not_called_reduced(tmp_path: Path) -> None:
    text = render(tmp_path, ["affine", "permutation"], Scale(steps=50_000, precision="bf16"), ["command"]).read_text()
    assert "Reduced" not in text
    assert text.count("not run") == 66


def test_the_command_runs_and_goes_on(tmp_path: Path, ran: list[Any]) -> None:
    words = ("--quick", "--table", "affine", "--row", "2", "--device", "cpu", "--out", str(tmp_path))
    first = call(*words)
    assert first.exit_code == 0, first.output
    assert "99.50 (99.86; -0.36)" in first.output
    assert "not run (99.42)" in first.output
    assert call(*words, "--table", "permutation", "--seeds", "2").exit_code == 0
    assert len(ran) == 3 + 3 + 6
    shown = call("--quick", "--render", "--out", str(tmp_path))
    assert shown.exit_code == 0
    assert len(ran) == 12
    assert "## Permutation" in shown.output
    assert "content, kernel" in shown.output


def test_the_command_really_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "QUICK", TINY)
    done = call("--quick", "--table", "permutation", "--row", "1", "--device", "cpu", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    found = kept(tmp_path, TINY)
    assert sorted(cell.column for cell in found) == ["er-h1", "er-h10", "infonce"]
    for cell, value in found.items():
        assert isinstance(value, Result)
        assert value.setting == cell.setting
        assert 0 < value.mcc <= 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--table", "afine"), "did you mean 'affine'"),
        (("--table", "affine", "--row", "13"), "row must be from 1 to 12 in affine, got 13"),
        (("--table", "permutation", "--row", "0"), "row must be from 1 to 10 in permutation, got 0"),
        (("--steps", "0"), "Invalid value for '--steps'"),
        (("--seeds", "0"), "Invalid value for '--seeds'"),
        (("--precision", "bf61"), "did you mean 'bf16'"),
        (("--precision", "tf32", "--device", "cpu"), "precision tf32 needs a GPU"),
        (("--device", "gpu"), "device must be"),
    ],
)
def test_bad_input_ends_the_command_with_one_message(words: tuple[str, ...], said: str, tmp_path: Path, ran: list[Any]) -> None:
    done = call("--quick", "--out", str(tmp_path / "new"), *words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())
    assert "Traceback" not in done.output
    assert not ran
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_used_ends_the_command_too(tmp_path: Path, ran: list[Any]) -> None:
    (tmp_path / "file").write_text("")
    done = call("--quick", "--out", str(tmp_path / "file"))
    assert done.exit_code == 2
    assert "results need a folder" in done.output
    words = ("--table", "affine", "--row", "2", "--device", "cpu", "--out", str(tmp_path / "cells"))
    assert call("--quick", *words).exit_code == 0
    other = call(*words)
    assert other.exit_code == 2
    assert "is of another setting" in " ".join(other.output.split())
    assert len(ran) == 3
    empty = call("--quick", "--render", "--out", str(tmp_path / "new"))
    assert empty.exit_code == 2
    assert "there are no cells in" in " ".join(empty.output.split())
    assert not (tmp_path / "new").exists()


def identify(*words: str) -> Called:
    return CliRunner().invoke(app, ["identify", "--device", "cpu", *words])


def test_one_setting_by_command(tmp_path: Path) -> None:
    small = ("--dim", "2", "--batch", "32", "--width", "5", "--steps", "20", "--out", str(tmp_path / "a.json"))
    done = identify(
        "--space", "sphere", "--marginal", "uniform", "--conditional", "vmf:1", "--model", "vmf:1",
        "--objective", "er", "--bandwidth", "1", *small,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for part in ("step      20", "the mixtures themselves: R2", "found (mean over 10 fresh batches): R2", "steps/s"):
        assert part in done.output
    from entrec.identifiability.records import read

    found = read(tmp_path / "a.json")
    assert isinstance(found, Result)
    assert found.setting == Setting(conditional="vmf:1", dim=2, batch=32, width=5, steps=20)
    again = identify(*small)
    assert again.exit_code == 2
    assert "already exists" in " ".join(again.output.split())


def test_a_file_of_another_setting_is_not_said_to_go_on(tmp_path: Path) -> None:
    path, others = tmp_path / "a.json", Setting(dim=2, batch=32, width=5, steps=40, seed=1)

    def stopping(at: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_setting(others, "cpu", stopping, tmp_path / "a.json.unfinished")
    done = identify("--dim", "2", "--batch", "32", "--width", "5", "--steps", "40", "--out", str(path))
    assert done.exit_code == 2
    assert "of another setting (seed 1 there, 0 now)" in " ".join(done.output.split())
    assert "going on" not in done.output


def test_a_setting_that_was_stopped_goes_on_by_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def words(name: str) -> tuple[str, ...]:
        return ("--dim", "2", "--batch", "32", "--width", "5", "--steps", "40", "--out", str(tmp_path / name))

    whole, original = identify(*words("whole.json")), console.print

    def stopping(*told: Any, **how: Any) -> None:
        original(*told, **how)
        if "step      20" in str(told[0]):
            raise KeyboardInterrupt

    monkeypatch.setattr(console, "print", stopping)
    stopped = identify(*words("a.json"))
    assert stopped.exit_code != 0
    assert "stopped; the same command goes on" in stopped.output
    monkeypatch.undo()
    done = identify(*words("a.json"))
    assert "a.json.unfinished stopped" in " ".join(done.output.split())
    assert "step      20" not in done.output
    assert [x for x in done.output.splitlines() if "found" in x] == [x for x in whole.output.splitlines() if "found" in x]
    assert {path.name for path in tmp_path.iterdir()} == {"whole.json", "a.json"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--space", "unbounded", "--conditional", "normal:1"), "marginal uniform needs a bounded space"),
        (("--space", "box"), "needs the sphere, got box"),
        (("--output", "sphere", "--model", "normal"), "projections on the sphere need the model vmf:KAPPA"),
        (("--conditional", "vmf:-1"), "within 1e-06 and 1e+06"),
        (("--objective", "infonce", "--bandwidth", "10"), "bandwidth is of ER"),
        (("--device", "cpu:1"), "device must be 'cpu'"),
        (("--batch", "5000000000", "--dim", "3", "--steps", "1"), "there is not the memory for this"),
        (("--steps", "0"), "steps must be at least 1, got 0"),
        (("--space", "spher"), "did you mean 'sphere'"),
        (("--model", "vnf:1"), "did you mean 'vmf'"),
        (("--precision", "bf16"), "precision bf16 needs a GPU"),
    ],
)
def test_one_setting_that_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    done = identify(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert done.output.count("error:") == 1
