"""What the losses on the sphere do before they begin: look at their views, and at the other ranks."""

from typing import Any

from torch import Tensor

from entrec import checks
from entrec.estimators.entropy import checked_across_ranks
from entrec.estimators.objective import stack_views
from entrec.pairwise import How

_NO_BANK = object()


def directions(
    views: dict[str, Tensor],
    how: How,
    gather_distributed: bool,
    validate: bool,
    least_rows: int = 1,
    bank: Any = _NO_BANK,
    temperature: float | Tensor = 1.0,
) -> tuple[Tensor, How]:
    """Views by name, checked and stacked to (V, k, d) in float32 or better, and the ranks' shares in `how`.

    A bank that they are compared with, and a temperature, which training may have moved anywhere, are checked too.
    """

    def check() -> tuple[Tensor, ...]:
        stacked = stack_views(list(views), list(views.values()), 1 if gather_distributed else least_rows)
        everything = dict(views)
        if bank is not _NO_BANK:
            checks.batch("bank", bank)
            checks.alike(next(iter(views)), stacked[0], "bank", bank, rows=False)
            everything["bank"] = bank
        values = checks.ValueChecks(validate)
        for name, z in everything.items():
            checks.on_a_sphere(name, z)
            values.directions(name, z)
        if isinstance(temperature, Tensor):
            values.positive("temperature", temperature)
        values.raise_or_flag()
        return (stacked,)

    (stacked,), how = checked_across_ranks(check, how, next(iter(views.values())), gather_distributed, least_rows)
    return stacked, how


def checked_temperature(temperature: float | Tensor) -> float | Tensor:
    """A positive number, or a tensor of one element that may be learnt."""
    checks.single("temperature", checks.positive("temperature", temperature))
    return temperature
