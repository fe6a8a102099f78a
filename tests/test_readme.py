"""What the README shows must run, and what it points to must be there."""

import re
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_examples_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = TensorDataset(torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8), torch.arange(16) % 2)
    names: dict[str, object] = {"my_dataset": mine, "train_set": mine, "test_set": mine}
    examples = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(examples) == 4
    for example in examples:
        exec(compile(example.replace("epochs=100", "epochs=1"), "README.md", "exec"), names)


def test_the_loss_takes_five_lines() -> None:
    (example,) = re.findall(r"in five lines\n\n```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line]) == 5


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_that_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert {"demo", "test"} <= named
    assert named <= targets
