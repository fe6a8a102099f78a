"""What the losses on the sphere do before they begin: look at their views, and at the other ranks."""

from torch import Tensor

from entrec import checks
from entrec.estimators.entropy import checked_across_ranks
from entrec.estimators.objective import stack_views
from entrec.pairwise import How
from entrec.pairwise.similarity import to_sphere


def directions(
    views: dict[str, Tensor], how: How, gather_distributed: bool, validate: bool, least_rows: int = 1, **further: Tensor
) -> tuple[Tensor, How]:
    """Views by name, stacked to (V, k, d) in float32 or better, and the ranks' shares in `how`; `further` is checked only."""
    names = list(views)
    stacked = stack_views(names, list(views.values()), 1 if gather_distributed else least_rows)
    values = checks.ValueChecks(validate)
    for name, z in (*views.items(), *further.items()):
        checks.on_a_sphere(name, z)
        values.directions(name, z)
    return stacked, checked_across_ranks(values, how, stacked, gather_distributed, least_rows)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosine similarity of matching rows; (..., d), (..., d) -> (...)."""
    return (to_sphere(a) * to_sphere(b)).sum(dim=-1)
