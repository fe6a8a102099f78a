"""What losses of a student and a teacher share: every pair of a student's view and another view that the teacher saw."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators.discrete import expected_log_prob
from entrec.estimators.entropy import checked_across_ranks
from entrec.pairwise import AS_USUAL, ranks

Views = Sequence[Tensor] | Tensor


def code_cross_entropy(
    logits: Views, targets: Views, names: tuple[str, str], temperature: float, gather_distributed: bool, validate: bool
) -> Tensor:
    r"""Mean cross entropy of the targets' codes with the codes predicted from other views, in nats.

    .. math:: -\operatorname*{mean}_{s \ne t} \frac1k \sum_i \sum_w p_{t,i}(w) \log \mathrm{softmax}(\ell_{s,i} / \tau)_w

    Minus `entrec.discrete_reconstruction` averaged over the pairs. Computed in float32 or better; no pair is ever held, only
    the sum of the targets that each view predicts.

    Args:
        logits: the student's, V tensors of shape (k, w).
        targets: distributions (k, w) of the first T <= V views; no gradient flows into them.
        names: of the two, for what is said of them.
        temperature: tau.
        gather_distributed: the mean over all ranks' rows.
        validate: check the values now.
    """

    def check() -> tuple[Tensor, ...]:
        check_groups(names, logits, targets)
        values = checks.ValueChecks(validate)
        for i, x in enumerate(logits):
            values.finite(f"{names[0]}[{i}]", x)
        for i, p in enumerate(targets):
            values.distributions(f"{names[1]}[{i}]", p)
        values.raise_or_flag()
        views = checks.same_dtype(*logits, *targets)
        return views[0].expand(len(logits), -1, -1), *views  # the first only tells the other ranks how many views there are

    (_, *views), how = checked_across_ranks(check, AS_USUAL, first(logits), gather_distributed)
    students, teachers = views[: len(logits)], [p.detach() for p in views[len(logits) :]]
    total = torch.zeros_like(students[0][:, 0])
    for s, x in enumerate(students):
        predicted = [p for t, p in enumerate(teachers) if t != s]
        if predicted:
            total = total - expected_log_prob(sum(predicted[1:], predicted[0]), torch.log_softmax(x / temperature, dim=-1))
    pairs = len(teachers) * (len(students) - 1)
    return ranks.gather(total / pairs, how.shares).mean()


def check_groups(names: tuple[str, str], sources: Any, targets: Any) -> None:
    """V >= 2 sources and 1 to V targets, all of one shape (k, d)."""
    for name, group in zip(names, (sources, targets), strict=True):
        if not isinstance(group, Sequence | Tensor):
            raise TypeError(f"{name} must be a sequence of tensors, one per view, got {type(group).__name__}")
    if len(sources) < 2:
        raise ValueError(f"{names[0]} must be at least 2 tensors, one per view, got {len(sources)}")
    if not 1 <= len(targets) <= len(sources):
        raise ValueError(f"{names[1]} must be 1 to {len(sources)} tensors, of the first views, got {len(targets)}")
    for name, group in zip(names, (sources, targets), strict=True):
        for i, x in enumerate(group):
            checks.batch(f"{name}[{i}]", x)
            checks.alike(f"{names[0]}[0]", sources[0], f"{name}[{i}]", x)


def first(views: Any) -> Any:
    """The first view, if there is one: where it is, the ranks can talk."""
    return views[0] if isinstance(views, Sequence | Tensor) and len(views) else None
