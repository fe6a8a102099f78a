"""Where a benchmark ran, and what else ran there."""

from pathlib import Path

import pytest
import torch

from entrec.bench import results


def test_what_others_keep_running_is_measured_while_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([100.0, 101.5])
    monkeypatch.setattr(results, "_spent", lambda: next(spent))
    monkeypatch.setattr(results, "_MOMENT", 0.5)
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    found = results.machine(torch.device("cpu"))
    assert found.load == 3.0  # cores, for half a second
    assert slept == [0.5]


def test_a_machine_that_does_not_tell_is_not_called_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_spent", lambda: None)
    found = results.machine(torch.device("cpu"))
    assert found.load is None
    assert not found.busy


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="needs Linux's /proc")
def test_cores_at_work_are_counted_in_seconds() -> None:
    first = results._spent()
    total = sum(i * i for i in range(3_000_000))  # a few clock ticks of work
    second = results._spent()
    assert total > 0
    assert first is not None
    assert second is not None
    assert 0 < second - first < 60
