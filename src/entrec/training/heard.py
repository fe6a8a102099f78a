"""Which of a method's options its objective reads: one that would have no effect is refused, and not passed over."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

from entrec.methods import METHODS

_OF_ER = ("estimator", "weight")  # not kappa: on the sphere, the bound is measured with it whatever the loss
_WIDTH = 2048  # of features, on which no default of these options depends


def refuse_unheard(method: str, er: bool, options: Mapping[str, Any], preset: Mapping[str, Any]) -> None:
    """Refuse options that were given and have no effect, unless they are what they would have been without.

    Args:
        method: one of the eight.
        er: the ER objective in place of its loss.
        options: of the method, that were given.
        preset: the settings that it begins from, in place of the method's own defaults.

    Raises:
        ValueError: with what was given and what would make it heard.
    """
    for name, where in _unheard(method, er, options):
        usual = [getattr(METHODS[method].defaults(_WIDTH, small), name) for small in (False, True)]
        if options[name] not in (usual if name not in preset else [preset[name]]):
            of = f"{method} with er=True (--er)" if er else f"{method}'s own loss"
            raise ValueError(f"{name}={options[name]} has no effect on {of}: {where}")


def without_unheard(config: Mapping[str, Any], common: Collection[str]) -> dict[str, Any]:
    """The settings of a file; where a run wrote them, who writes down all, without those that it had no use for.

    Args:
        config: the file's keys and values.
        common: the names of all settings but the methods' own.
    """
    method = config.get("method")
    if not isinstance(method, str) or method not in METHODS:
        return dict(config)
    own = {field.name for field in fields(METHODS[method].options)}
    if 2 * len(config.keys() & {*own, *common}) < len(own) + len(common):  # of all: earlier versions had fewer
        return dict(config)
    options = {key: value for key, value in config.items() if key in own}
    unheard = dict(_unheard(method, config.get("er") is True, options))
    return {key: value for key, value in config.items() if key not in unheard}


def _unheard(method: str, er: bool, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options that nothing reads, and where they are read."""
    entry = METHODS[method]
    on_sphere = er and options.get("estimator", "discrete") != "discrete"
    for name in options:
        if name in _OF_ER and not er:
            yield name, "it belongs to the ER objective, er=True (--er)"
        elif name == "kappa" and method == "dino" and not on_sphere:
            yield name, "it belongs to ER on the sphere, er=True (--er) with the estimator joe or plugin (--estimator)"
        elif name in entry.of_own_loss and er:
            instead = "; ER has kappa (--kappa) in its place" if name == "temperature" else ""
            yield name, f"it belongs to {method}'s own loss, which ER replaces{instead}"
