"""The trained encoder back from a run or a checkpoint, without the data that it was trained on."""

from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal, NamedTuple

from entrec import checks
from entrec.branches.backbones import Backbone, build_backbone
from entrec.data import Source
from entrec.training import checkpoint
from entrec.training.run import Run, open_run
from entrec.views.augment import Augment, Plain
from entrec.views.recipe import recipe

Who = Literal["student", "teacher"]
# Where a method's state dict keeps each: teachers are a copy of the encoder followed by a head.
_PREFIX = {"student": "encoder.", "teacher": "teacher.module.0."}


class Encoder(NamedTuple):
    """A trained encoder, and what must be known to use it.

    Args:
        backbone: with the trained weights, in eval mode.
        config: the run's settings.
        facts: of its data.
        who: the student's weights or the teacher's.
    """

    backbone: Backbone
    config: dict[str, Any]
    facts: dict[str, Any]
    who: Who

    @property
    def prepare(self) -> Plain:
        """The function from uint8 images (k, C, H, W) to what the encoder takes: the evaluation view."""
        size = self.config["image_size"]
        return Plain(Augment(recipe("none", size, 1), self.facts["mean"], self.facts["std"]), size)


def facts_of(source: Source) -> dict[str, Any]:
    """What a checkpoint remembers of the data."""
    return {
        "name": source.name,
        "channels": source.channels,
        "mean": tuple(source.mean),
        "std": tuple(source.std),
        "classes": tuple(source.classes),
        "images": len(source.train),  # type: ignore[arg-type]
        "held_out": source.test is not None,  # else the lens looks at training images
    }


def load_encoder(run: Run | Path | str, who: Who = "student") -> Encoder:
    """The encoder of a run's last checkpoint, or its best where that was kept, or of a checkpoint file.

    Raises:
        ValueError: the method has no teacher, or the file is no checkpoint.
    """
    checks.choice("who", who, Who)
    path = Path(run) if isinstance(run, str | Path) else run.folder
    file = path if path.suffix == ".ckpt" else open_run(path).kept
    content = checkpoint.load(file)
    prefix = _PREFIX[who]
    weights = _below(prefix, content.parts["method"])
    if not weights:
        method = content.config["method"]
        raise ValueError(f"{file} holds no {who}: {method} has none{' at this setting' if who == 'teacher' else ''}")
    backbone = build_backbone(content.config["backbone"], content.facts["channels"], content.config["image_size"])
    backbone.module.load_state_dict(weights)
    backbone.module.eval()
    return Encoder(backbone, content.config, content.facts, who)


def _below(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """Of a state dict what belongs to one of its modules, with the versions by which modules know older weights."""
    found: Any = OrderedDict((k.removeprefix(prefix), v) for k, v in state.items() if k.startswith(prefix))
    versions = getattr(state, "_metadata", {})
    found._metadata = {
        f"{k}.".removeprefix(prefix).removesuffix("."): v for k, v in versions.items() if f"{k}.".startswith(prefix)
    }
    return found  # type: ignore[no-any-return]
