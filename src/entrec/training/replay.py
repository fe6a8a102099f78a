"""What a second forward pass must find as the first one found it, or leave as that one left it."""

from collections.abc import Iterable

import torch
from torch import nn


class RandomState:
    """The states of torch's generators on the CPU and on some devices, as they were when this was made."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._cpu = torch.get_rng_state()
        self._others = {x: torch.get_device_module(x).get_rng_state(x) for x in devices if x.type != "cpu"}

    def restore(self) -> None:
        """Draw from here on what was drawn then."""
        torch.set_rng_state(self._cpu)
        for device, state in self._others.items():
            torch.get_device_module(device).set_rng_state(state, device)


class Buffers:
    """The buffers of some modules, as they were when this was made."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        owners = dict.fromkeys(owner for module in modules for owner in module.modules())
        self._buffers = [(owner, name, x) for owner in owners for name, x in owner._buffers.items() if x is not None]
        # Sparse and expanded buffers are not written to in place, by the encoder or here.
        self._values = [(x, x.clone()) for _, _, x in self._buffers if x.layout is torch.strided and 0 not in x.stride()]

    def restore(self) -> None:
        """Undo what was assigned or written since."""
        for owner, name, x in self._buffers:
            owner._buffers[name] = x
        for x, value in self._values:
            x.data.copy_(value)  # .data, or a graph of the caller's that holds a frozen buffer would take it for changed
