"""Curves: each run with a look of its own, axes that can be read, and ceilings where they are known."""

import re
from html import unescape
from pathlib import Path

import pytest

from entrec.report import write_report
from entrec.report.chart import Line, chart, labels, span, ticks
from entrec.report.curves import curves
from entrec.report.known import Known
from entrec.report.style import Look, legend, line_swatch
from tests.report.test_page import make_run


def known(name: str = "mine", dim: int = 8, **columns: list[float]) -> Known:
    """A run with a row for each epoch."""
    count = max(map(len, columns.values()))
    rows = [
        {"step": n + 1, "epoch": n, **{key: values[n] for key, values in columns.items() if n < len(values)}}
        for n in range(count)
    ]
    return Known(name, {"dim": dim}, rows, {}, True, ())


def figures(html: str) -> dict[str, str]:
    """Charts by their titles."""
    return dict(re.findall(r"<figure><figcaption>(.*?)</figcaption>(.*?)</figure>", unescape(html)))


def texts(figure: str, anchor: str) -> list[str]:
    return re.findall(rf"<text[^>]*text-anchor='{anchor}'>(.*?)</text>", figure)


def looks(html: str) -> list[tuple[str, str]]:
    return re.findall(r"stroke='(#\w+)' stroke-width='[\d.]+'(?: stroke-dasharray='([^']*)')?", html)


def test_thirty_runs_can_be_told_apart_and_the_legend_draws_what_the_chart_does() -> None:
    drawn = curves([known(str(n), er_bound=[0.0, float(n)]) for n in range(30)])
    in_chart = [looks(re.findall(rf"<g id='run{n}-er_bound'>(.*?)</g>", drawn)[0])[0] for n in range(30)]
    assert len(set(in_chart)) == 30
    assert in_chart == [looks(line_swatch(n))[0] for n in range(30)]
    assert len({dash for _, dash in in_chart[:5]}) == 5  # without colours too


def test_forty_classes_can_be_told_apart() -> None:
    drawn = re.findall(r"<path (.*?)/>", legend({n: str(n) for n in range(40)}))
    assert len(set(drawn)) == 40


def test_a_single_epoch_is_a_dot_at_a_whole_number() -> None:
    (figure,) = figures(curves([known(er_bound=[0.25])])).values()
    assert texts(figure, "middle") == ["1", "epoch"]
    assert figure.count("<circle") == 1


def test_accuracies_are_in_percent_and_end_at_a_hundred() -> None:
    found = figures(curves([known(knn_top1=[0.5, 0.6], probe_top1=[0.1, 1.0])]))
    assert list(found) == ["kNN accuracy (%)", "Online probe's accuracy (%)"]
    assert texts(found["kNN accuracy (%)"], "end") == ["60", "80", "100"]
    assert texts(found["Online probe's accuracy (%)"], "end") == ["20", "40", "60", "80", "100"]


def test_the_held_out_entropy_is_on_its_scale_from_0_to_1() -> None:
    (figure,) = figures(curves([known(held_out_entropy=[0.4, 0.5])])).values()
    assert texts(figure, "end") == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


def test_numbers_beside_an_axis_are_whole_numbers_and_not_offsets() -> None:
    assert labels(ticks(*span([131.8001, 131.8004], "plain")))[0] == "131.8001"
    assert labels(ticks(-0.3, 0.3)) == ["-0.2", "0.0", "0.2"]
    assert labels(ticks(0, 1e9))[1] == "2e+08"


@pytest.mark.parametrize("value", [0.0, -131.246, 1e-9, 1e12])
def test_a_number_that_never_changes_has_an_axis(value: float) -> None:
    (figure,) = figures(curves([known(er_bound=[value, value])])).values()
    assert "nan" not in figure
    assert len(texts(figure, "end")) >= 2


def test_entropies_in_nats_share_an_axis_only_where_they_have_the_same_scale() -> None:
    runs = [known("a", 8, entropy=[-1.0]), known("b", 64, entropy=[-130.0]), known("c", 8, entropy=[-2.0])]
    found = figures(curves(runs))
    assert list(found) == ["Entropy, in training (nats): a, c", "Entropy, in training (nats): b"]
    assert re.findall(r"id='(\w+)-entropy'", found["Entropy, in training (nats): a, c"]) == ["run0", "run2"]
    assert list(figures(curves([runs[0], runs[2]]))) == ["Entropy, in training (nats)"]


def test_ceilings_are_drawn_where_they_were_measured() -> None:
    bound, ceiling = [1.0, 2.0], [9.5, 9.5]
    assert "-ceiling" not in curves([known(held_out_er_bound=bound)])
    er = known(held_out_er_bound=bound, held_out_er_ceiling=ceiling)
    drawn = curves([er, known(held_out_infonce_bound=bound, held_out_infonce_ceiling=ceiling)])
    for number, key in enumerate(("held_out_er_bound", "held_out_infonce_bound")):
        (line,) = re.findall(rf"<g id='run{number}-{key}-ceiling'>(.*?)</g>", drawn)
        assert "stroke-width='0.9' stroke-dasharray='2 2'" in line


def test_ceilings_are_explained_where_they_are_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "byol", False)
    assert "are ceilings" not in write_report([run], tmp_path / "page.html").read_text()
    columns = "step,epoch,held_out_er_bound,held_out_er_ceiling"
    (tmp_path / "a" / "metrics.csv").write_text(f"{columns}\n1,0,1.5,9\n2,1,2.5,9\n")
    assert "are ceilings" in write_report([run], tmp_path / "page.html").read_text()


def test_a_line_is_broken_where_there_is_no_number() -> None:
    line = Line("x", "mine", [(1, 1.0), (2, 2.0), (3, float("nan")), (4, 3.0), (5, float("inf"))], Look("#000", ""))
    drawn = chart("title", [line], "plain")
    assert drawn.count("stroke-width='1.8'") == 1
    assert drawn.count("<circle") == 1
    assert not re.search(r"\b(nan|inf)\b", drawn)
    assert chart("title", [line._replace(points=[(1, float("nan"))])], "plain") == ""
