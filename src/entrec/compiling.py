"""How this process may compile."""

import logging
import warnings
from typing import Any

import torch

_FORMS = 256  # of one function: a grid of runs in one process compiles it for each


def allow_compiling() -> None:
    """Let a function be compiled for every encoder that a process trains: beyond PyTorch's limit of 8, it silently is not."""
    # Where products are float32 they are meant to be.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
    warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")
    # Optimizers name their step for a profiler, which compiled code does not tell: once for each function that has one.
    logging.getLogger("torch._dynamo.variables.ctx_manager").addFilter(_no_profilers_name)
    dynamo: Any = torch._dynamo.config
    dynamo.recompile_limit = max(dynamo.recompile_limit, _FORMS)


def _no_profilers_name(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Profiler record function")
