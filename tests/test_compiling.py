import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from entrec.compiling import allow_compiling


def test_a_profilers_name_in_compiled_code_is_no_matter_and_other_warnings_are(caplog: pytest.LogCaptureFixture) -> None:
    allow_compiling()
    allow_compiling()
    logger = logging.getLogger("torch._dynamo.variables.ctx_manager")
    logger.addHandler(caplog.handler)

    def named(x: Tensor) -> Tensor:
        with torch.autograd.profiler.record_function("here"):
            return x + 1

    compiled: Any = torch.compile(named, backend="eager")
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    logger.warning("something else")
    logger.removeHandler(caplog.handler)
    assert {x.getMessage() for x in caplog.records if x.levelno >= logging.WARNING} == {"something else"}
