"""The quick study, run once: what it must show, and what it must write."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrec.cli import app
from entrec.paper.convergence import Study, run, write
from entrec.paper.convergence.discrete import CHUNKS, DIM
from entrec.paper.convergence.measure import Measured, bias_slope, variance_slope


@pytest.fixture(scope="module")
def study() -> Study:
    return run(quick=True)


def _close(point: Measured, expected: float, relative: float) -> bool:
    return abs(point.bias - expected) <= max(4 * point.bias_se, relative * abs(expected))


def test_every_statement_is_measured_as_derived(study: Study) -> None:
    assert [f.statement for f in study.findings if not f.as_derived] == []


def test_verdicts_on_the_paper(study: Study) -> None:
    fails = {f.statement.split(":")[0].split(" (")[0] for f in study.findings if f.verdict == "does not hold"}
    assert fails == {"Joe", "Plug-in", "Reconstruction", "Discrete plug-in"}
    assert sum(f.verdict == "does not hold" for f in study.findings) == 6
    assert sum(f.verdict == "holds" for f in study.findings) == 8


def test_one_hot_bias_is_half_the_degrees_of_freedom_over_k(study: Study) -> None:
    for point in study.discrete.one_hot.points:
        if point.x >= 5 * DIM:
            assert _close(point, -(DIM - 1) / (2 * point.x), 0.1)


def test_the_average_of_r_chunks_has_r_times_the_bias(study: Study) -> None:
    for point in study.discrete.chunked.points:
        if point.x / CHUNKS >= 5 * DIM:
            assert _close(point, -CHUNKS * (DIM - 1) / (2 * point.x), 0.1)


def test_soft_codes_have_the_bias_of_their_variance(study: Study) -> None:
    for point in study.discrete.soft.points:
        assert point.predicted is not None
        assert _close(point, point.predicted, 0.1)


def test_reconstruction_variance_falls_as_one_over_k_under_its_bound(study: Study) -> None:
    for case in study.reconstruction:
        assert variance_slope(case.curve.points).near(-1)
        for point in case.curve.points:
            assert point.variance - 4 * point.variance_se <= case.bound / point.x
    assert all(abs(p.bias) < 4.5 * p.bias_se for case in study.reconstruction for p in case.curve.points)


def test_the_papers_variance_bounds_are_broken(study: Study) -> None:
    for case in (study.reconstruction[1], study.reconstruction[3]):
        last = case.curve.last
        assert last.variance - 4 * last.variance_se > case.paper_bound / last.x


def test_joes_bias_falls_as_one_over_k_and_rises_as_width_to_minus_d(study: Study) -> None:
    for dim in (2, 3, 5):
        for curve in study.entropy.sphere_k[dim]:
            assert bias_slope(curve.points).near(-1)
        assert bias_slope(study.entropy.sphere_width[dim].points).near(-(dim - 1), 0.5)


def test_a_shrinking_bandwidth_approaches_the_entropy_and_h_of_one_does_not(study: Study) -> None:
    for rules in study.entropy.rules:
        assert rules.balanced.last.rmse < 0.7 * rules.balanced.points[0].rmse
        assert rules.fixed.last.rmse > 0.8 * rules.fixed.points[0].rmse


def test_the_plugin_approaches_its_limit_and_leaves_the_entropy(study: Study) -> None:
    for rules in study.entropy.rules:
        limit = rules.distribution.plugin_limit - rules.distribution.entropy
        first, last = rules.plugin.points[0], rules.plugin.last
        assert abs(last.bias - limit) < abs(first.bias - limit)
        assert abs(last.bias) > abs(first.bias)


def test_with_the_exact_entropy_no_estimate_exceeds_the_information(study: Study) -> None:
    for curves in study.calibration.values():
        exact, leave_one_out, with_self, infonce = curves
        assert all(abs(p.bias) <= 4 * p.bias_se for p in exact.points)
        assert any(p.bias > 5 * p.bias_se for p in leave_one_out.points)
        assert all(p.x + p.bias < math.log(1000) for p in (*with_self.points, *infonce.points))


def test_writes_json_a_table_and_figures(study: Study, tmp_path: Path) -> None:
    paths = write(study, tmp_path / "new" / "folder")
    assert {path.name for path in paths} >= {"results.json", "table.md", "overview.png"}
    document = json.loads((tmp_path / "new" / "folder" / "results.json").read_text())
    assert document["seed"] == 0
    assert set(document["versions"]) == {"entrec", "torch", "python"}
    assert len(document["findings"]) == len(study.findings)
    rows = [line for line in (tmp_path / "new" / "folder" / "table.md").read_text().splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(study.findings)
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}
    for path in paths:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            assert path.stat().st_size > 20_000


def test_table_and_figures_are_made_again_from_the_results(tmp_path: Path) -> None:
    """The committed table, byte by byte, from the committed numbers; which stay as they are."""
    committed = Path(__file__).parents[2] / "results" / "convergence"
    numbers = (committed / "results.json").read_bytes()
    (tmp_path / "results.json").write_bytes(numbers)
    result = CliRunner().invoke(app, ["paper", "convergence", "--render", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "table.md").read_bytes() == (committed / "table.md").read_bytes()
    assert (tmp_path / "results.json").read_bytes() == numbers
    assert {path.name for path in committed.glob("*.png")} == {path.name for path in tmp_path.glob("*.png")}


@pytest.mark.parametrize(("text", "told"), [(None, "there is no"), ("{}", "holds no results"), ("[", "holds no results")])
def test_what_cannot_be_rendered_is_said(tmp_path: Path, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    result = CliRunner().invoke(app, ["paper", "convergence", "--render", "--out", str(tmp_path)], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert told in result.output
