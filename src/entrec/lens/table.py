"""Readings as lines of a table: what was read, its value, and between what it lies."""

from typing import NamedTuple

from entrec.lens.readings import CodeReadings, Pairs, Readings


class Line(NamedTuple):
    """A line of the table."""

    name: str
    value: str
    between: str


def lines(found: Readings | CodeReadings) -> list[Line]:
    """The readings, in nats where nothing else is said."""
    own = _codes(found) if isinstance(found, CodeReadings) else _directions(found)
    return [*own, *([] if found.pairs is None else _pairs(found.pairs))]


def _directions(found: Readings) -> list[Line]:
    low, middle, high = found.spread
    return [
        Line(
            "entropy (Joe, leave-one-out)",
            f"{found.entropy:.2f}",
            f"{found.floor:.2f} one point, {found.ceiling:.2f} everywhere",
        ),
        Line("entropy, from 0 to 1", f"{found.filled:.2f}", "0 one point, 1 everywhere"),
        Line("effective rank", f"{found.rank:.1f}", f"1 to {found.largest_rank}"),
        Line("spread of a dimension", f"{middle:.2f}", f"here from {low:.2f} to {high:.2f}; 1 where even"),
        Line("uniformity", f"{found.uniformity:.2f}", f"0 one point, {_even_uniformity(found.dim):.2f} everywhere"),
    ]


def _codes(found: CodeReadings) -> list[Line]:
    most = f"0 to ln {found.codes} = {found.largest:.4f}"
    return [
        Line("entropy of the codes in use", f"{found.marginal:.4f}", most),
        Line("entropy of a datum's codes", f"{found.conditional:.4f}", most),
    ]


def _pairs(pairs: Pairs) -> list[Line]:
    found = [
        Line("own other view nearer", f"{pairs.nearer:.1%}", "50% chance, 100% always"),
        Line("reconstruction", f"{pairs.reconstruction:.2f}", "the second view's, from the first"),
    ]
    found.append(Line("ER bound", f"{pairs.er_bound:.2f}", f"ceiling {pairs.er_ceiling:.2f}"))
    if pairs.infonce_bound is not None:
        found.append(Line("InfoNCE bound", f"{pairs.infonce_bound:.2f}", f"ceiling ln k = {pairs.infonce_ceiling:.2f}"))
    if pairs.alignment is not None:
        found.append(Line("alignment", f"{pairs.alignment:.3f}", "0 the same, 2 at right angles"))
    return found


def _even_uniformity(dim: int, t: float = 2.0) -> float:
    """Log E exp(-t |x - y|^2) of independent points that fill the sphere evenly: a von Mises-Fisher constant at 2t."""
    from entrec.estimators.sphere import log_sphere_area, vmf_log_normalizer

    return float(-vmf_log_normalizer(2 * t, dim)) - log_sphere_area(dim) - 2 * t
