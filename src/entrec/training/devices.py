"""Where a run computes: device, processes and precision, through Lightning's Fabric."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy

from entrec.training.settings import Settings

PACKAGES = ("lightning.fabric", "lightning.pytorch", "lightning_fabric", "pytorch_lightning")  # of Lightning


def meant(device: str) -> str:
    """The device that a word stands for: `auto` is a GPU if there is one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def fabric_for(wanted: Settings) -> Fabric:
    """Fabric for the device, ranks and precision that are asked for, launched.

    Raises:
        ValueError: the device is not there.
    """
    device = meant(wanted.device)
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {wanted.device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' needs a GPU that PyTorch can use, and there is none; device='cpu' works")
    if device == "cuda" and wanted.devices > torch.cuda.device_count():
        raise ValueError(f"devices={wanted.devices} needs as many GPUs, and there are {torch.cuda.device_count()}")
    # Cards before Ampere would emulate it, slowly.
    has_bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    halves = wanted.precision or ("bf16" if has_bf16 else "32")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    several = wanted.devices > 1 or world > 1
    # Buffers are not broadcast: SyncBatchNorm keeps statistics equal, and queues and banks are equal by how they are filled.
    strategy: Any = DDPStrategy(broadcast_buffers=False) if several else "auto"
    devices = int(os.environ["LOCAL_WORLD_SIZE"]) if "LOCAL_WORLD_SIZE" in os.environ else wanted.devices
    precision: Any = {"bf16": "bf16-mixed", "32": "32-true"}[halves]
    nodes = world // devices if "LOCAL_WORLD_SIZE" in os.environ else 1
    with without_advice():
        fabric = Fabric(accelerator=device, devices=devices, num_nodes=nodes, strategy=strategy, precision=precision)
        fabric.launch()
    return fabric


@contextmanager
def without_advice() -> Iterator[None]:
    """Lightning tells which precision it was asked for, and to allow TF32, which an encoder under bf16 has no use for."""
    # Whichever of its packages was imported last speaks for all.
    loggers = [logging.getLogger(name) for name in PACKAGES]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
