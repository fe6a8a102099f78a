"""Experiments that were stopped end as those that were not."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from entrec.identifiability import ContentStyle, Setting, content_style, identify, isolate
from entrec.identifiability.experiment import _AHEAD

# Of 70 steps, with a point after every third: draws are made for 32 of them at once.
SETTING = Setting(conditional="vmf:10", dim=2, batch=32, steps=70, rate=1e-2, schedule="cosine", width=5, draws=10)
BOTH = ContentStyle(content=2, style=1, batch=32, steps=70, rate=1e-2, schedule="cosine", width=5, draws=10)


class StoppedError(Exception):
    """As when a process is killed."""


def stopping(at: int) -> Any:
    def heard(*point: Any) -> None:
        step = point[0] if isinstance(point[0], int) else point[0].step
        if step >= at:
            raise StoppedError

    return heard


@pytest.mark.parametrize("at", [1, _AHEAD - 2, _AHEAD + 1, 2 * _AHEAD + 2])
def test_one_that_was_stopped_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path, at: int) -> None:
    path = tmp_path / "unfinished" / "run.pt"
    whole = identify(SETTING, "cpu")
    with pytest.raises(StoppedError):
        identify(SETTING, "cpu", stopping(at), path)
    steps: list[int] = []
    again = identify(SETTING, "cpu", lambda point: steps.append(point.step), path)
    assert replace(again, seconds=0.0) == replace(whole, seconds=0.0)
    assert steps[0] > at  # what was done is not done again
    assert [point.step for point in again.curve] == [*range(3, 70, 3), 70]


def test_seconds_are_those_of_all_sittings(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    with pytest.raises(StoppedError):
        identify(SETTING, "cpu", stopping(30), path)
    state = torch.load(path, weights_only=True)
    state["experiment"]["seconds"] = 1000.0
    torch.save(state, path)
    assert identify(SETTING, "cpu", resume=path).seconds > 1000


def test_a_run_stopped_twice(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    for at in (20, 50):
        with pytest.raises(StoppedError):
            identify(SETTING, "cpu", stopping(at), path)
    assert identify(SETTING, "cpu", resume=path).curve == identify(SETTING, "cpu").curve


@pytest.mark.parametrize("at", [7, 40])
def test_content_and_style_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(content_style, "_JUDGED", 200)
    path, whole = tmp_path / "run.pt", isolate(BOTH, "cpu")
    with pytest.raises(StoppedError):
        isolate(BOTH, "cpu", stopping(at), path)
    again = isolate(BOTH, "cpu", resume=path)
    assert replace(again, seconds=0.0) == replace(whole, seconds=0.0)


def test_one_of_another_setting_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    with pytest.raises(StoppedError):
        identify(SETTING, "cpu", stopping(30), path)
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"of another setting \(steps 70 there, 90 now; seed 0 there, 1 now\): go on with that"
    ):
        identify(replace(SETTING, steps=90, seed=1), "cpu", resume=path)
    with pytest.raises(ValueError, match="of another setting"):
        isolate(BOTH, "cpu", resume=path)
    assert path.read_bytes() == before


class Evil:
    """What an unpickler would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("touched"),)


@pytest.mark.parametrize(
    "content", [b"", b"nothing of the kind", pickle.dumps(Evil(), protocol=2), None], ids=["empty", "text", "code", "other"]
)
def test_a_damaged_file_is_named_and_nothing_of_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.pt"
    if content is None:
        torch.save({"format": 1}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.pt is no unfinished experiment, or .*: remove it to begin anew"):
        identify(SETTING, "cpu", resume=path)
    assert not (tmp_path / "touched").exists()


def test_there_is_nothing_to_go_on_from_where_the_loss_is_no_number(tmp_path: Path) -> None:
    free = Setting("unbounded", "normal:1", "normal:1", "unbounded", "normal", dim=2, batch=32, steps=40, width=5, draws=10)
    path = tmp_path / "run.pt"
    found = identify(replace(free, rate=1e6), "cpu", resume=path)
    assert found.diverged is not None
    assert not path.exists()


@pytest.mark.parametrize(
    "damage", [{"judge": torch.zeros(16, dtype=torch.uint8)}, {"experiment": {}}, {"setting": None}], ids=list
)
def test_one_that_does_not_fit_here_is_refused_by_name(tmp_path: Path, damage: dict[str, Any]) -> None:
    path = tmp_path / "run.pt"
    with pytest.raises(StoppedError):
        identify(SETTING, "cpu", stopping(30), path)
    torch.save({**torch.load(path, weights_only=True), **damage}, path)  # a GPU's generator has a state of 16 bytes
    with pytest.raises(ValueError, match=r"run\.pt is an unfinished experiment of another (device than cpu|setting)"):
        identify(SETTING, "cpu", resume=path)
