"""How this process may compile."""

import logging
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

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


@cache
def why_not(kind: str) -> str:
    """Why nothing can be compiled for a kind of device here, in a line; empty where it can.

    A machine may lack a compiler, which PyTorch finds out in the middle of the first step.
    """
    allow_compiling()
    try:
        torch.compile(_anything, dynamic=False)(torch.ones(16, device=kind))
    except Exception as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return f"{type(error).__name__}: {said}"
    return ""


def _anything(x: Tensor) -> Tensor:
    return (x * 2 + 1).sum()


def _no_profilers_name(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Profiler record function")
