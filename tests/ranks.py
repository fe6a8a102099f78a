"""Run a function on several gloo processes and bring its results back."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn


def on_ranks(world_size: int, function: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """`function(rank, world_size, *args)` on every rank; the results in the order of the ranks."""
    spawn(_work, (world_size, function, folder, args), nprocs=world_size)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world_size)]


def _work(rank: int, world_size: int, function: Callable[..., Any], folder: Path, args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size)
    try:
        torch.save(function(rank, world_size, *args), folder / f"{rank}.pt")
    finally:
        gc.collect()  # wrappers that hold the group in a circle; its threads must end before the interpreter does, or it aborts
        dist.destroy_process_group()
