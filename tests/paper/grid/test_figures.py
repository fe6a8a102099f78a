"""What stands in the figures, read off their SVG, in which each text is named in a comment."""

import re
from pathlib import Path

import pytest

from entrec.paper.grid import begin, render
from entrec.paper.grid.setting import Setting
from entrec.training.loop import DivergedError
from tests.paper.grid.runs import TINY, ended, failed


@pytest.fixture
def out(tmp_path: Path) -> Path:
    begin(tmp_path, "resilience", TINY)
    return tmp_path


def texts(out: Path, name: str) -> list[str]:
    ((path, _),) = render(out, name).figures
    return re.findall(r"<!-- (.*?) -->", path.with_suffix(".svg").read_text())


def test_a_panel_without_runs_says_so(out: Path) -> None:
    assert texts(out, "resilience").count("not run") == 5
    ended(out / "runs", Setting("byol"))
    failed(out / "runs", Setting("simclr"), DivergedError("the loss is nan"))
    found = texts(out, "resilience")
    assert (found.count("not run"), found.count("failed")) == (2, 1)
    assert found.count("own loss") == 1
    assert "ER" not in found


def test_the_point_without_an_ema_is_drawn(out: Path) -> None:
    ended(out / "runs", Setting("byol"), 0.7)
    ((path, _),) = render(out, "resilience").figures
    before = path.read_bytes()
    ended(out / "runs", Setting("byol", ema=None), 0.7)
    assert texts(out, "resilience").count("none") == 2  # DINO's panel and BYOL's
    assert path.read_bytes() != before


@pytest.mark.parametrize(("name", "panels"), [("dynamics", 9), ("mi-relation", 8), ("estimators", 2)])
def test_other_figures_say_it_too(out: Path, name: str, panels: int) -> None:
    assert texts(out, name).count("not run") == panels


def test_a_legend_names_the_small_batch_only_where_it_is_drawn(out: Path) -> None:
    ended(out / "runs", Setting("byol"))
    assert not any("dashed" in text for text in texts(out, "dynamics"))
    ended(out / "runs", Setting("byol", fraction=8))
    assert any("dashed" in text for text in texts(out, "dynamics"))
