"""A run that goes on must be the run that was begun."""

from dataclasses import fields
from typing import Any

from entrec.data import Source
from entrec.training import checkpoint
from entrec.training.encoders import facts_of
from entrec.training.loop import Loop
from entrec.training.run import Run, open_run
from entrec.training.settings import Settings, settings

# What may change when a run goes on: how it is computed and shown, not what.
_MAY_CHANGE = {
    "capture", "checkpoint_every", "compile", "device", "devices", "evaluate_every", "evaluate_last", "keep", "lens",
    "log_every", "on_collapse", "patience", "root", "scores", "strict", "wandb", "workers",
}  # fmt: skip


def as_before(run: Run, method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run that goes on; those given again must be the same, unless they do not change the result.

    Raises:
        ValueError: something else is asked for than what was begun.
    """
    before = open_run(run.folder).config
    if before.pop("method") != method:
        raise ValueError(f"the run in {run.folder} is of another method than {method}; see its config.yaml")
    asked = settings(method, given).flat()
    usual = {field.name for field in fields(Settings)}
    for key in given:
        value = asked[key]
        if key in _MAY_CHANGE or (value is None and key in usual):  # None: whatever is usual, and that is what it has
            continue
        if key not in before:
            raise ValueError(f"the run in {run.folder} has no {key}")
        if before[key] != value:
            raise ValueError(f"the run in {run.folder} has {key} = {before[key]}, and cannot go on with {value}")
    if "data" not in given and before["data"].startswith("<"):
        raise ValueError(f"the run in {run.folder} was begun on a Python data set {before['data']}: give it as data=...")
    return {**before, **{key: value for key, value in given.items() if key in _MAY_CHANGE}}


def restore(loop: Loop, source: Source) -> None:
    """Take the loop to the run's last checkpoint; a run that was stopped before its first one begins again.

    Raises:
        ValueError: the checkpoint is of another run, or of other data.
    """
    if not loop.run.checkpoint.is_file():
        return
    found, wanted = checkpoint.load(loop.run.checkpoint), loop.settings.flat()
    # A setting that the checkpoint does not know is newer than it, and its default is what was done before.
    different = [key for key in wanted if key not in _MAY_CHANGE and found.config.get(key, wanted[key]) != wanted[key]]
    if different:
        raise ValueError(f"the checkpoint is of another run: {', '.join(different)} differ from config.yaml")
    facts = facts_of(source)
    for key in ("images", "channels", "classes"):
        if found.facts[key] != facts[key]:
            raise ValueError(f"the data have changed since the run was begun: {key} was {found.facts[key]} and is {facts[key]}")
    loop.restore(found.place, found.parts, found.history)
