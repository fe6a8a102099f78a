"""The report is one page that needs nothing but itself."""

import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from entrec.report import write_report
from entrec.report.names import names_of
from entrec.report.page import name_of
from entrec.training import checkpoint
from entrec.training.checkpoint import Content, History, Place
from entrec.training.run import Metrics, Run, write_config, write_summary


def cells(page: str, name: str) -> dict[str, str]:
    """The summary's row of a run, by the columns' labels."""
    (row,) = re.findall(rf"<tr><th scope='row'>{re.escape(name)}(?:<small>.*?</small>)?</th>(.*?)</tr>", page)[:1]
    return dict(re.findall(r"<td data-label='(.*?)'>(.*?)</td>", row))


def make_run(folder: Path, method: str, er: bool, **numbers: Any) -> Run:
    run = Run(folder)
    write_config(run, {"method": method, "er": er, "data": "<my images>", "ema": None, "epochs": 2})
    measured = {"entropy": -1.234, "reconstruction": 2.351, "er_bound": 1.111, "knn_top1": 0.456, "linear_top1": 0.567}
    write_summary(run, {"protocols": [f"kNN: k = 20 & {method}", "linear: L2 < 1"], **measured, **numbers})
    metrics = Metrics(folder / "metrics.csv")
    for step in range(1, 5):
        metrics.write({"step": step, "epoch": (step - 1) // 2, "entropy": -1.0, "reconstruction": 0.5 * step, "er_bound": 0.1})
    metrics.write({"step": 4, "epoch": 1, "knn_top1": 0.4})
    return run


class Outline(HTMLParser):
    """The tags of a page, with whatever they point to, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.pointers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.pointers += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href", "data", "action")]

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


@pytest.fixture
def page(tmp_path: Path) -> str:
    runs = [make_run(tmp_path / "a", "byol", False), make_run(tmp_path / "b", "simclr", True, knn_top1=None, er_bound=3.21)]
    found = write_report(runs, tmp_path / "pages" / "report.html", "Mine & yours", ["First <paragraph>."])
    assert found == tmp_path / "pages" / "report.html"
    return found.read_text()


def test_it_has_the_runs_names_and_numbers(page: str) -> None:
    text = Outline(page).text
    for words in ("BYOL", "SimCLR + ER", "-1.23", "2.35", "1.11", "3.21", "45.6%", "56.7%", "entropy (nats)", "linear probe"):
        assert words in text


def test_what_was_not_measured_is_a_dash(page: str) -> None:
    row = cells(page, "SimCLR + ER")
    assert row["kNN"] == row["lens"] == "-"
    assert row["ER bound (nats)"] == "3.21"
    assert row["linear probe"] == "56.7%"


def test_verdict_and_scores_come_first(page: str) -> None:
    assert list(cells(page, "BYOL"))[:3] == ["lens", "kNN", "linear probe"]


def test_it_needs_nothing_but_itself(page: str) -> None:
    outline = Outline(page)
    assert {"script", "link", "iframe", "img", "object", "embed", "form"}.isdisjoint(outline.tags)
    assert [pointer for pointer in outline.pointers if not pointer.startswith("#")] == []
    assert re.findall(r"url\((?!#)", page) == []
    assert "@import" not in page
    assert page.startswith("<!doctype html>")


def test_it_shows_curves_settings_and_protocols(page: str) -> None:
    outline = Outline(page)
    # A chart for each of the bound's two terms, the bound and kNN, and a swatch for each run.
    assert outline.tags.count("figure") == 4
    assert outline.tags.count("svg") == 4 + 2
    for words in ("kNN: k = 20 & byol", "linear: L2 < 1", "data <my images>", "First <paragraph>.", "Mine & yours"):
        assert words in outline.text
        assert escape(words) in page
    assert page.count(escape("linear: L2 < 1")) == 1  # said once, though both runs followed it


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", "dino", True)]
    one, two = (write_report(runs, tmp_path / f"{i}.html").read_text() for i in range(2))
    assert len(one) == len(two)


def test_a_run_that_was_not_labelled_has_a_page_too(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "ir", False, knn_top1=None, linear_top1=None, protocols=[], entropy=None)
    page = write_report([run], tmp_path / "report.html").read_text()
    assert set(cells(page, "IR").values()) == {"-", "1.11", "2.35"}
    assert "How it was measured" not in page  # there is nothing to be said beneath it


@pytest.mark.parametrize(
    ("method", "name"),
    [("simclr", "SimCLR"), ("cmc", "CMC"), ("ir", "IR"), ("moco", "MoCo"), ("deepcluster", "DeepCluster"), ("swav", "SwAV"),
     ("byol", "BYOL"), ("dino", "DINO")],
)  # fmt: skip
def test_methods_are_written_as_their_papers_do(method: str, name: str, tmp_path: Path) -> None:
    write_config(Run(tmp_path), {"method": method, "er": False})
    assert name_of(Run(tmp_path)) == name
    write_config(Run(tmp_path), {"method": method, "er": True})
    assert name_of(Run(tmp_path)) == f"{name} + ER"


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", "byol", False), make_run(tmp_path / "b", "simclr", True)]
    (tmp_path / "b" / "summary.json").unlink()
    page = write_report(runs, tmp_path / "report.html").read_text()
    assert "SimCLR + ER has not ended" in page
    assert "BYOL has not ended" not in page
    assert "<th scope='row'>SimCLR + ER<small>not ended, epoch 2 of 2</small></th>" in page
    row = cells(page, "SimCLR + ER")
    assert row["kNN"] == "40.0%"
    assert row["reconstruction (nats)"] == "1.75"  # the mean of the second epoch's 1.5 and 2
    assert row["linear probe"] == "-"
    assert "id='run1-entropy'" in page


def test_verdicts_of_a_run_that_goes_on_are_those_of_its_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "byol", False)
    (tmp_path / "a" / "summary.json").unlink()
    history = History(1.0, (), ((1, "collapsed", None), (2, "weak", 0.1)))
    checkpoint.save(run.checkpoint, Content(Place(4, 2, 0), run.config, {}, {}, history))
    page = write_report([run], tmp_path / "report.html").read_text()
    assert "collapsed after epoch 1, weak after epoch 2" in page
    assert "<h3>BYOL (not ended, epoch 2 of 2)</h3>" in page
    assert cells(page, "BYOL")["lens"] == "weak"
    run.checkpoint.write_bytes(b"half of one")
    assert "What the lens saw" not in write_report([run], tmp_path / "report.html").read_text()


def test_a_run_that_has_written_no_row_yet_has_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "byol", False)
    (tmp_path / "a" / "summary.json").unlink()
    Metrics(tmp_path / "a" / "metrics.csv")
    page = write_report([run], tmp_path / "report.html").read_text()
    assert "not ended, no numbers yet" in page
    assert "There are no numbers yet to draw." in page


def test_a_box_hides_a_runs_curves_and_no_other(page: str) -> None:
    for number in (0, 1):
        assert f"#show{number}:not(:checked) ~ .curves [id^='run{number}-'] {{ display: none; }}" in page
        assert f"<input type='checkbox' id='show{number}' checked><label for='show{number}'>" in page
        assert f"id='run{number}-er_bound'" in page


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, "byol", False) for name in ("first", "second")]
    text = Outline(write_report(runs, tmp_path / "report.html").read_text()).text
    assert "BYOL (first)" in text
    assert "BYOL (second)" in text


def test_as_much_of_the_path_is_named_as_tells_runs_apart(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("p/run", "q/run", "p/other", "q/run")]
    runs = [make_run(folder, "byol", False) for folder in folders]
    assert names_of(runs) == ["BYOL (p/run)", "BYOL (q/run)", "BYOL (other)", "BYOL (q/run, again: 2)"]


def test_differences_of_settings_are_a_table(page: str) -> None:
    (table,) = re.findall(r"<h2>Differences</h2>.*?<table.*?>(.*?)</table>", page)
    assert "<tr><th scope='row'>er</th><td data-label='BYOL'>False</td><td data-label='SimCLR + ER'>True</td></tr>" in table
    assert "epochs" not in table  # the same in both


def test_verdicts_are_told_as_they_changed(tmp_path: Path) -> None:
    verdicts = [{"epochs": n, "verdict": name} for n, name in enumerate(["collapsed", "collapsed", "healthy"], 1)]
    run = make_run(tmp_path / "a", "byol", False, verdicts=verdicts, verdict="healthy")
    text = Outline(write_report([run], tmp_path / "report.html").read_text()).text
    assert "collapsed after epochs 1 to 2, healthy after epoch 3" in text


def test_a_diagnosis_is_told_with_its_numbers_and_remedies(tmp_path: Path) -> None:
    told = {"name": "weak", "title": "Weak: <little>", "because": ["In 60% of cases & so."], "remedies": ["More steps."]}
    run = make_run(tmp_path / "a", "byol", False, verdict="weak", verdicts=[{"epochs": 2, "verdict": "weak"}], diagnosis=told)
    page = write_report([run], tmp_path / "report.html").read_text()
    for words in (
        "<b>Weak: &lt;little&gt;</b>",
        "<p>In 60% of cases &amp; so.</p>",
        "<li>More steps.</li>",
        "weak after epoch 2",
    ):
        assert words in page


def test_a_bound_below_zero_is_said_to_tell_nothing(page: str) -> None:
    assert "A bound below zero tells nothing" in page


@pytest.mark.parametrize("name", ["$x_{", "_run", "\u6f22\u5b57", "<i>&'\"", "\udcff"])
def test_any_name_of_a_folder_is_shown_as_it_is(name: str, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / part / name, "byol", False) for part in ("p$", "q$")]
    page = write_report(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"BYOL (p$/{name})".replace("\udcff", "?") in Outline(page).text
    assert "<i>&" not in page
