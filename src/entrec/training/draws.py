"""Every random draw of a run as a function of its seed and its place in the run, so that a resumed run needs no RNG state."""

import torch

from entrec.data.batches import mixed as seed_of

__all__ = ["generator_of", "seed_of"]


def generator_of(device: torch.device | str, *place: int) -> torch.Generator:
    """A generator on the device, seeded by a place in the run: the seed, what it is for, the step, the rank."""
    return torch.Generator(device).manual_seed(seed_of(*place))
