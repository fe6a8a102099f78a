"""Which parameters decay and adapt, and which do not."""

from collections.abc import Iterable
from typing import Any

from torch import nn


def faster(groups: list[dict[str, Any]], module: nn.Module, factor: float) -> list[dict[str, Any]]:
    """The groups of an optimizer with a module's parameters in groups of their own, at `factor` times the rate.

    Args:
        groups: each with its rate, `lr`.
        module: whose parameters go faster, or slower.
        factor: of the rate.
    """
    own = {id(p) for p in module.parameters()}
    found: list[dict[str, Any]] = []
    for group in groups:
        apart = [p for p in group["params"] if id(p) in own]
        rest = [p for p in group["params"] if id(p) not in own]
        found += [{**group, "params": rest}] if rest else []
        found += [{**group, "params": apart, "lr": factor * group["lr"]}] if apart else []
    return found


def parameter_groups(modules: nn.Module | Iterable[nn.Module], weight_decay: float) -> list[dict[str, Any]]:
    """An optimizer's groups: weights, and apart from them biases and norms, which neither decay nor adapt.

    SimCLR (Appendix B.6) and BYOL (Section 3.2) leave biases and the scales and shifts of BatchNorm out of weight decay and of
    LARS's adaptation. A parameter of at most one dimension, or one named `bias` or `..._bias`, is one of those. `adapt` is read
    by `LARS`; torch's own optimizers carry it along unread.

    Args:
        modules: one module, or several: a parameter that two of them share is taken once. Frozen ones are left out.
        weight_decay: of the weights, at least 0.
    Returns: at most two groups, without empty ones, in the order weights, others.

    Example:
        >>> [(len(group["params"]), group["weight_decay"], group["adapt"]) for group in parameter_groups(nn.Linear(3, 2), 1e-6)]
        [(1, 1e-06, True), (1, 0.0, False)]
    """
    if not weight_decay >= 0:
        raise ValueError(f"weight_decay must be at least 0, got {weight_decay}")
    whole = nn.ModuleList([modules] if isinstance(modules, nn.Module) else modules)
    trained = [(name, p) for name, p in whole.named_parameters() if p.requires_grad]  # each parameter once, by its first name
    if not trained:
        raise ValueError("modules must have parameters that require grad, got none: is everything frozen?")
    weights = [p for name, p in trained if not (p.ndim <= 1 or _is_bias(name))]
    others = [p for name, p in trained if p.ndim <= 1 or _is_bias(name)]
    groups: list[dict[str, Any]] = [
        {"params": weights, "weight_decay": weight_decay, "adapt": True},
        {"params": others, "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


def _is_bias(name: str) -> bool:
    last = name.rpartition(".")[-1]
    return last == "bias" or last.endswith("_bias")
