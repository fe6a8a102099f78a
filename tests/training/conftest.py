import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from entrec.training import train as train_module
from entrec.training.loop import Loop

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product: without it sums have no fixed order


@pytest.fixture
def in_a_fixed_order() -> Iterator[None]:
    """The same run computes the same numbers, on a GPU too."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    """The loops of the runs to come."""
    seen: list[Loop] = []

    class Watched(Loop):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            seen.append(self)

    monkeypatch.setattr(train_module, "Loop", Watched)
    return seen
