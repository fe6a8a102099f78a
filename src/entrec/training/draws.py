"""Every random draw of a run as a function of its seed and its place in the run, so that a resumed run needs no RNG state."""

import torch

_MASK = (1 << 64) - 1


def seed_of(*place: int) -> int:
    """One number from several (seed, step, rank, ...), as if at random: splitmix64 over all of them in turn."""
    state = 0
    for number in place:
        state = (state ^ (number & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1  # torch takes 63 bits


def generator_of(device: torch.device | str, *place: int) -> torch.Generator:
    """A generator on the device, seeded by a place in the run."""
    return torch.Generator(device).manual_seed(seed_of(*place))
