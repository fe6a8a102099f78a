"""Tables in results/ are what today's code makes of the runs beside them."""

import shutil
from pathlib import Path
from typing import get_args

import pytest

from entrec.paper.grid import render
from entrec.paper.grid.names import EXPERIMENTS
from entrec.paper.identifiability import Scale
from entrec.paper.identifiability import render as render_identifiability
from entrec.paper.identifiability.published import TableName

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("results") / "cifar10-tiny"
    shutil.copytree(RESULTS / "cifar10-tiny", copy)
    return copy


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_of_the_small_encoder_are_those_of_its_runs(name: str, runs: Path) -> None:
    render(runs, name)
    assert (runs / name / "table.md").read_text() == (RESULTS / "cifar10-tiny" / name / "table.md").read_text()


def test_the_tables_of_identifiability_are_those_of_its_cells(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "identifiability" / "cells", tmp_path / "cells")
    path = render_identifiability(tmp_path, get_args(TableName), Scale(), ["entrec paper identifiability"])
    assert path.read_text() == (RESULTS / "identifiability" / "table.md").read_text()
