r"""The ER objective over two or more views, with and without a teacher (ER paper, Section 4 and Algorithm 1).

Minimised. At weight 1, with Joe's estimator and without a teacher, its negative is `er_bound(...).value` averaged over the
ordered pairs of views. With a teacher the entropy is the student's and stands in for the teacher's, which follows it. At any
other weight it is an objective and bounds nothing. (For a density with :math:`\log q = \kappa s + \log C`, a weight of
lambda has the gradient of the bound whose density has lambda kappa.)
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators.density import Density, check_density, check_values
from entrec.estimators.discrete import check_chunks, discrete_entropy_from_log_probs, expected_log_prob
from entrec.estimators.entropy import Estimator, checked_across_ranks, checked_how, unnormalised_entropy
from entrec.estimators.reconstruction import unnormalised_reconstruction
from entrec.pairwise import AS_USUAL, Backend, Precision, ranks


class ERObjective(NamedTuple):
    """The value to minimise, minus (entropy + weight x reconstruction), and the two terms in nats."""

    loss: Tensor
    entropy: Tensor
    reconstruction: Tensor


def er_objective(
    views: Sequence[Tensor],
    density: Density,
    kernel: Density | None = None,
    estimator: Estimator = "plugin",
    weight: float = 1.0,
    leave_one_out: bool = False,
    *,
    targets: Sequence[Tensor] | None = None,
    predictions: Sequence[Tensor] | None = None,
    precision: Precision = "fast",
    backend: Backend = "auto",
    gather_distributed: bool = False,
    validate: bool = True,
) -> ERObjective:
    r"""Minus the mean entropy of the views minus the weighted mean reconstruction of their pairs, in nats.

    .. math:: -\frac1V \sum_v \hat H(Z_v) - \lambda \operatorname*{mean}_{s \ne t} \widehat{\mathrm{Rec}}(Z_t \mid Z_s)

    For two views this is :math:`-\frac12 (H_1 + \lambda \mathrm{Rec}_1 + H_2 + \lambda \mathrm{Rec}_2)` of Algorithm 1.

    Args:
        views: the student's projections, V >= 2 tensors of shape (k, d), row i of each from the same datum.
        density: the reconstruction density q.
        kernel: the kernel of the entropy estimate; the density itself if not given.
        estimator: `"plugin"` (the paper's experiments) or `"joe"`.
        weight: lambda, the weight of the reconstruction, not negative.
        leave_one_out: leave out each point's own kernel.
        targets: the teacher's projections of the first T <= V views (the others, such as small crops, only the student saw);
            no gradient flows into them. Without them the student's projections are the targets.
        predictions: the predictor's outputs, one per view; they take the views' place as what is reconstructed *from*.
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        gather_distributed: the objective of all ranks' rows together, the same on every rank (see `entrec.losses`).
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.
    """
    kernel = density if kernel is None else kernel
    check_density("density", density)
    check_density("kernel", kernel)
    checks.choice("estimator", estimator, Estimator)
    check_weight(weight)
    how, least = checked_how(precision, backend), 2 if leave_one_out else 1

    def check() -> tuple[Tensor, ...]:
        stacks = _stack_views(views, targets, predictions, least_rows=1 if gather_distributed else least)
        student, teacher, sources = stacks
        values = checks.ValueChecks(validate)
        check_values(values, kernel, views=student)
        if kernel is not density:
            check_values(values, density, views=student)
        if targets is not None:
            check_values(values, density, targets=teacher)
        if predictions is not None:
            check_values(values, density, predictions=sources)
        values.raise_or_flag()
        return stacks

    (student, teacher, sources), how = checked_across_ranks(check, how, _first(views), gather_distributed, least)
    # Without a teacher or a predictor both orders of a pair have the same density: each similarity is symmetric.
    source, target = pairs_of_views(sources, teacher, ordered=targets is not None or predictions is not None)
    dim = student.shape[-1]
    log_c, kernel_log_c = density.log_normalizer(dim), kernel.log_normalizer(dim)
    entropy = unnormalised_entropy(student, kernel, estimator, leave_one_out, how).mean()
    rec = unnormalised_reconstruction(target, source, density, how)
    loss = -(entropy + weight * rec + (weight * log_c - kernel_log_c))
    return ERObjective(loss, entropy - kernel_log_c, rec + log_c)


def discrete_er_objective(
    views: Sequence[Tensor],
    temperature: float = 0.1,
    weight: float = 1.0,
    chunks: int = 1,
    *,
    targets: Sequence[Tensor] | None = None,
    predictions: Sequence[Tensor] | None = None,
    gather_distributed: bool = False,
    validate: bool = True,
) -> ERObjective:
    r"""The ER objective of discrete surrogates: logits in, the same two terms out (ER paper, Appendix A.2).

    With :math:`s_v = \mathrm{softmax}(\ell_v / \tau)` the student's own distributions, the entropy is that of their batch mean,
    with its gradient, and the reconstruction is :math:`\frac1k \sum_i \sum_w p_t(w) \log s_s(w)` over the pairs s != t.

    Args:
        views: the student's logits, V >= 2 tensors of shape (k, d).
        temperature: tau, which divides the student's logits, positive.
        weight: lambda, the weight of the reconstruction, not negative.
        chunks: average the entropy over that many equal parts of the batch.
        targets: the codes of the first T <= V views as probabilities (a teacher's softmax, Sinkhorn's or k-means' codes); no
            gradient flows into them. Without them the student's own distributions are the targets.
        predictions: the predictor's logits, one per view, in place of the views' as what is reconstructed from.
        gather_distributed: the objective of all ranks' rows together, the same on every rank (see `entrec.losses`).
        validate: check the values now; `False` defers that to `entrec.raise_if_invalid`.
    """
    checks.positive("temperature", temperature)
    check_weight(weight)

    def check() -> tuple[Tensor, ...]:
        stacks = _stack_views(views, targets, predictions, least_rows=1)
        student, teacher, sources = stacks
        if not gather_distributed:
            check_chunks(student.shape[1], chunks)
        values = checks.ValueChecks(validate)
        values.finite("views", student)
        if predictions is not None:
            values.finite("predictions", sources)
        if targets is not None:
            values.distributions("targets", teacher, rounded_to=targets[0].dtype)
        values.raise_or_flag()
        return stacks

    (student, teacher, sources), how = checked_across_ranks(check, AS_USUAL, _first(views), gather_distributed)
    shares = how.shares
    if gather_distributed:
        check_chunks(student.shape[1] if shares is None else shares.total, chunks)
    log_student = torch.log_softmax(student / temperature, dim=-1)
    log_source = log_student if predictions is None else torch.log_softmax(sources / temperature, dim=-1)
    source, target = pairs_of_views(log_source, log_student.exp() if targets is None else teacher)
    entropy = discrete_entropy_from_log_probs(log_student, chunks, shares).mean()
    rec = ranks.gather(expected_log_prob(target, source), shares).mean()
    return ERObjective(-(entropy + weight * rec), entropy, rec)


def check_weight(weight: float, name: str = "weight") -> None:
    """The weight of a term is a number of at least zero."""
    if isinstance(weight, bool) or not isinstance(weight, int | float | Real):
        raise TypeError(f"{name} must be a number, got {type(weight).__name__}")
    if not 0 <= weight < float("inf"):
        raise ValueError(f"{name} must be at least 0 and finite, got {weight}")


def _first(views: Any) -> Any:
    return views[0] if isinstance(views, Sequence | Tensor) and len(views) else None


def _stack_views(
    views: Sequence[Tensor], targets: Sequence[Tensor] | None, predictions: Sequence[Tensor] | None, least_rows: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Student views (V, k, d), targets (T, k, d) without gradient and sources (V, k, d), in float32 or better."""
    for name, group in (("views", views), ("targets", targets), ("predictions", predictions)):
        if group is not None and not isinstance(group, Sequence | Tensor):
            raise TypeError(f"{name} must be a sequence of tensors, one per view, got {type(group).__name__}")
    if len(views) < 2:
        raise ValueError(f"views must be at least 2 tensors, got {len(views)}")
    if targets is not None and not 1 <= len(targets) <= len(views):
        raise ValueError(f"targets must be 1 to {len(views)} tensors, of the first views, got {len(targets)}")
    if predictions is not None and len(predictions) != len(views):
        raise ValueError(f"predictions must be one tensor per view, {len(views)}, got {len(predictions)}")
    why = " with leave_one_out=True" if least_rows > 1 else ""
    student = _stack("views", views, views[0], least_rows, why)
    teacher = student if targets is None else _stack("targets", targets, views[0], least_rows, why).detach()
    sources = student if predictions is None else _stack("predictions", predictions, views[0], least_rows, why)
    return student, teacher, sources


def _stack(name: str, group: Sequence[Tensor], like: Tensor, least_rows: int, why: str) -> Tensor:
    return stack_views([f"{name}[{i}]" for i in range(len(group))], group, least_rows, why, ("views[0]", like))


def stack_views(
    names: Sequence[str],
    views: Sequence[Tensor],
    least_rows: int = 1,
    why: str = "",
    like: tuple[str, Tensor] | None = None,
) -> Tensor:
    """Views of one shape (that of `like`, or of the first) as one tensor (V, k, d), in float32 or better."""
    first, example = like or (names[0], views[0])
    for name, x in zip(names, views, strict=True):
        checks.batch(name, x, least_rows, why)
        checks.alike(first, example, name, x)
    return torch.stack(checks.same_dtype(*views))


def pairs_of_views(sources: Tensor, targets: Tensor, ordered: bool = True) -> tuple[Tensor, Tensor]:
    """Every (source, target) of different views, or each pair once, stacked to two tensors of shape (pairs, k, d)."""
    from_views, to_views = sources.unbind(), targets.unbind()
    pairs = [(s, t) for t in range(len(to_views)) for s in range(len(from_views)) if s != t and (ordered or s < t)]
    if len(pairs) == 1:
        ((s, t),) = pairs
        return from_views[s].unsqueeze(0), to_views[t].unsqueeze(0)
    return torch.stack([from_views[s] for s, _ in pairs]), torch.stack([to_views[t] for _, t in pairs])
