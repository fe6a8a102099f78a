"""The examples run, in few steps, and end with a verdict."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plain_loop() -> None:
    assert "Healthy: spread out" in run("plain_loop.py", "--steps", "60")


@pytest.mark.slow
def test_a_plain_loop_that_collapses() -> None:
    assert "Constant collapse" in run("plain_loop.py", "--steps", "100", "--collapse")


def test_lightlys_simclr() -> None:
    for package in ("lightly", "pytorch_lightning"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    said = run("lightly_simclr.py", "--steps", "4")
    assert "step 4: " in said
    assert "Effective rank" in said


def test_each_is_named_here() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if path.name not in tested] == []
