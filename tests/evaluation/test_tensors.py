from pathlib import Path

import torch
from safetensors import safe_open

from entrec.evaluation.tensors import write_tensors

TENSORS = {"b": torch.randn(3, 2), "a": torch.arange(5), "half": torch.randn(7).half()}
FACTS = {name: f'{name} "é" \n\t\x01 \\ \x7f / \U0001f600' for name in "zyxwvutsr"}


def test_equal_tensors_and_facts_are_equal_files(tmp_path: Path) -> None:
    for number in range(8):
        write_tensors(TENSORS, tmp_path / str(number), FACTS)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_nothing_else_is_changed(tmp_path: Path) -> None:
    write_tensors(TENSORS, tmp_path / "x", FACTS)
    with safe_open(tmp_path / "x", "pt") as file:
        assert file.metadata() == FACTS
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {k: x.tolist() for k, x in TENSORS.items()}  # noqa: SIM118
