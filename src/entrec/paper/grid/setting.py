"""A setting: a method, and what in it differs from the base."""

from dataclasses import dataclass
from typing import Any, Literal

from entrec.paper.grid.presets import Preset
from entrec.paper.runner import Cell

NAMES = {
    "simclr": "SimCLR", "cmc": "CMC", "ir": "IR", "moco": "MoCo", "deepcluster": "DeepCluster", "swav": "SwAV", "byol": "BYOL",
    "dino": "DINO",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One thing to train, with any seed.

    Args:
        method: of the eight.
        er: the ER objective in place of its loss.
        fraction: the base batch is divided by this.
        rate_kept: the learning rate is that of the base batch, where the linear rule would divide it by `fraction` too.
        ema: the teacher's coefficient; None for no teacher; 1 for one that stays as it was drawn.
        centring: of DINO's teacher.
        estimator: of the entropy; None for the method's own.
        weight: lambda, of the reconstruction.
    """

    method: str
    er: bool = False
    fraction: int = 1
    rate_kept: bool = False
    ema: float | Literal["base"] | None = "base"
    centring: bool = True
    estimator: str | None = None
    weight: float = 1.0

    @property
    def label(self) -> str:
        """The method as the paper calls it."""
        return NAMES[self.method] + ("+ER" if self.er else "")

    def name(self, preset: Preset) -> str:
        """That of its runs' folders, but for the seed: what differs from the preset's base."""
        words = [self.method, *(["er"] if self.er else [])]
        words += [] if self.fraction == 1 else [f"batch{preset.batch // self.fraction}"]
        words += ["ratekept"] if self.rate_kept else []
        words += [] if self.ema == "base" else ["noema" if self.ema is None else f"ema{self.ema:g}"]
        words += [] if self.centring else ["nocentring"]
        words += [] if self.estimator is None else [self.estimator]
        return "-".join([*words, *([] if self.weight == 1 else [f"weight{self.weight:g}"])])

    def given(self, preset: Preset) -> dict[str, Any]:
        """What `entrec.train` is given."""
        found: dict[str, Any] = {**preset.given, **preset.options.get(self.method, {})}
        # The trainer multiplies the rate by the batch, and so divides it by the fraction.
        rate = preset.rate_of(self.method) * (self.fraction if self.rate_kept else 1)
        found |= {"batch_size": preset.batch // self.fraction, "rate": rate, "log_every": preset.log_every * self.fraction}
        if self.ema != "base":
            found["ema"] = self.ema
        found |= {} if self.centring else {"centring": False}
        found |= {} if self.estimator is None else {"estimator": self.estimator}
        return {**found, "er": self.er, **({} if self.weight == 1 else {"weight": self.weight})}

    def cell(self, preset: Preset, seed: int) -> Cell:
        """The run with a seed."""
        return Cell(f"{self.name(preset)}-seed{seed}", self.method, {**self.given(preset), "seed": seed})
