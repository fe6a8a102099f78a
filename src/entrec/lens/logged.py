"""Readings as the numbers that a log takes."""

from dataclasses import asdict

from entrec.lens.readings import CodeReadings, Readings


def numbers(found: Readings | CodeReadings, under: str) -> dict[str, float]:
    """What was read, by its name under a heading; entropies of codes over ln m. What was not measured is left out."""
    if isinstance(found, CodeReadings):
        own = {"marginal": found.marginal / found.largest, "conditional": found.conditional / found.largest}
    else:
        own = {"entropy": found.entropy, "entropy_scale": found.filled, "uniformity": found.uniformity}
        own |= {"effective_rank": found.rank, "std_min": found.spread[0], "std_median": found.spread[1]}
    pairs = {} if found.pairs is None else {key: value for key, value in asdict(found.pairs).items() if value is not None}
    return {f"{under}/{key}": value for key, value in (own | pairs).items()}
