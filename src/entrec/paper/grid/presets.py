"""On which data, with which encoder and for how long: the paper's protocol, and its like for CIFAR-10 and for a CPU."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

# The small batch and the EMA of the paper's Table 1: an eighth of the batch, and 0.8 instead of 0.99.
SMALL, LOW_EMA = 8, 0.8


@dataclass(frozen=True)
class Preset:
    """What all runs of a grid share, and which variations it has.

    Args:
        name: of the preset.
        data: a name, a folder or an archive.
        backbone: the encoder.
        epochs: of each run.
        batch: images in a step, the base setting's.
        rate: learning rate for 256 images in a batch.
        fractions: the small batches are the base one divided by these; the paper's is the eighth.
        emas: lower coefficients of the teacher; None for no teacher.
        weights: lambda, of the reconstruction.
        seeds: runs of each cell.
        images: at most so many to train on, and as many to be judged by; None for all.
        rates: of methods that have another one.
        options: of methods, where they are not the method's own defaults. An EMA that varies keeps the schedule that stands
            here, so that one thing differs at a time.
        log_every: steps between two rows of metrics.csv at the base batch; in smaller batches as many more, so that runs have
            about as many rows.
        evaluate_every: epochs between two looks at held-out images.
        given: whatever else `entrec train` takes.
    """

    name: str
    data: str
    backbone: str
    epochs: int
    batch: int
    rate: float
    fractions: tuple[int, ...] = (4, 8, 32)
    emas: tuple[float | None, ...] = (LOW_EMA, 0.6, None)
    weights: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
    seeds: int = 3
    images: int | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    log_every: int = 10
    evaluate_every: int = 1
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        odd = [x for x in self.fractions if self.batch % x or self.batch // x < 2]
        if odd:
            raise ValueError(f"fractions must divide the batch of {self.batch} into batches of 2 and more, got {odd[0]}")
        if not {1, SMALL} <= {1, *self.fractions} or LOW_EMA not in self.emas or 1.0 not in self.weights:
            raise ValueError(
                f"the claims need a batch of 1/{SMALL}, an EMA of {LOW_EMA} and a weight of 1 among the variations"
            )

    def rate_of(self, method: str) -> float:
        """A method's learning rate for 256 images in a batch."""
        return self.rates.get(method, self.rate)

    def facts(self) -> dict[str, Any]:
        """As JSON has them; of the data's path only its name, which is the same on every machine."""
        return {**asdict(self), "data": Path(self.data).name}

    def reduced(self, **changes: Any) -> "Preset":
        """With what a user asked for; None leaves a value as it is."""
        given = {key: value for key, value in changes.items() if value is not None}
        if "epochs" in given:  # a look at the end at the least
            given["evaluate_every"] = min(self.evaluate_every, given["epochs"])
        return replace(self, **given)


# A name in two minutes on two cores: shows that all is wired, and decides little.
QUICK = Preset(
    name="quick",
    data="shapes",
    backbone="tiny",
    epochs=2,
    batch=64,
    rate=6e-3,
    fractions=(8,),
    emas=(LOW_EMA, None),
    weights=(0.1, 1.0, 100.0),
    seeds=1,
    images=256,
    options={"moco": {"queue": 128}, "byol": {"ema": 0.99}, "dino": {"ema": 0.99, "schedule": "constant"}},
    log_every=1,
)

# The ER paper's EMA, which it names without a schedule; with DINO's own, that rises to 1, a teacher of 0.8 would be a slow one
# for most of a run.
_TEACHERS: dict[str, dict[str, Any]] = {"byol": {"ema": 0.99}, "dino": {"ema": 0.99, "schedule": "constant"}}

CIFAR10 = Preset(
    name="cifar10",
    data="cifar10",
    backbone="resnet18",
    epochs=25,
    batch=1024,
    # Four times the paper's, as 25 epochs are few: with 0.3 BYOL's linear probe was 5 points lower after 10 epochs, DINO's and
    # DINO + ER's 6 after 25. SimCLR has been run with this one alone.
    rate=1.2,
    options=_TEACHERS,
    log_every=8,
    evaluate_every=2,
    given={"optimizer": "lars", "compile": True},  # what one run has compiled is there for the others, though each is short
)

# The same with an encoder that needs a fortieth of the operations: a run of it is a minute on a GPU, in a small batch a few.
TINY = replace(CIFAR10, name="cifar10-tiny", backbone="tiny", given={"optimizer": "lars"})

# The paper's protocol (Section 5): 400 epochs, batch 4096, LARS at 0.3, EMA 0.99.
IMAGENET = Preset(
    name="imagenet",
    data="imagenet",
    backbone="resnet50",
    epochs=400,
    batch=4096,
    rate=0.3,
    options=_TEACHERS,
    log_every=100,
    evaluate_every=10,
    given={"optimizer": "lars", "image_size": 224},
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in (QUICK, TINY, CIFAR10, IMAGENET)}
