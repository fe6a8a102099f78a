"""Tensors and facts in a safetensors file that is the same whenever they are."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

_SIZE = 8  # bytes at the beginning, which say how long the header is


def write_tensors(tensors: Mapping[str, Tensor], path: Path, facts: Mapping[str, str]) -> None:
    """Write a file; safetensors has its metadata in an order of chance, which is sorted here, so that files can be compared."""
    save_file(dict(tensors), path, dict(facts))
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(_SIZE), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) > size:  # of the same letters it is as long, or tensors behind it would be written over
            raise RuntimeError(f"the sorted header of {path} has {len(text)} bytes, and there is room for {size}")
        file.seek(_SIZE)
        file.write(text.ljust(size))
