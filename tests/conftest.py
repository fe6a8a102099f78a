"""What every test module shares."""

import pytest
import torch

from entrec import checks

torch.set_num_threads(1)  # small tensors: more threads would only wait for each other


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Every test starts from a fixed seed and a clear flag."""
    torch.manual_seed(0)
    for flag in checks._flags.buffers():
        flag.zero_()
