import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from entrec.identifiability import ContentStyle, Isolation, Point, Result, Setting
from entrec.identifiability.records import read, write

RESULT = Result(Setting(steps=2), 0.5, 0.25, 0.1, 0.2, None, [Point(1, 3.0, 0.1, 0.2), Point(2, 2.0, 0.5, 0.25)], 1.5, "CPU")
ISOLATION = Isolation(ContentStyle(steps=2), (0.9, 0.95), (0.1, 0.2), None, [(1, 3.0), (2, 2.0)], 1.5, "CPU")


@pytest.mark.parametrize("result", [RESULT, ISOLATION, replace(RESULT, setting=Setting(seed=3, steps=2))])
def test_a_result_is_read_as_it_was_written(result: Result | Isolation, tmp_path: Path) -> None:
    write(result, tmp_path / "new" / "a.json")
    assert read(tmp_path / "new" / "a.json") == result


def test_numbers_that_json_has_not_survive(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(replace(RESULT, r2=math.nan, curve=[Point(1, math.inf, math.nan, math.nan)]), path)
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    found = read(path)
    assert isinstance(found, Result)
    assert math.isnan(found.r2)
    assert found.curve[0].loss == math.inf


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"setting": {"colour": 1}}', '{"setting": {"steps": 0}}', "{"])
def test_other_files_are_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ValueError, match=r"other\.json holds no result of an experiment"):
        read(tmp_path / "other.json")
