"""lightly's SimCLR under pytorch_lightning with two things of entrec's: the ER bound for NT-Xent, and the lens.

The data are scikit-learn's digits, through lightly's own transform. Run it, half a minute on a laptop core, with

    pip install lightly
    python examples/lightly_simclr.py
"""

import argparse
from typing import Any

import pytorch_lightning as pl
import torch
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from entrec import LensCallback, VonMisesFisher
from entrec.losses import ERLoss


class Digits(Dataset[Any]):
    """Digits as pictures, each item lightly's two views of one."""

    def __init__(self) -> None:
        self.images = (load_digits().images * 15.9375).astype("uint8")
        self.transform = SimCLRTransform(input_size=16, min_scale=0.5, gaussian_blur=0.0, hf_prob=0.0)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.images)

    def __getitem__(self, index: int) -> list[Tensor]:
        """Two views of one of them."""
        found: list[Tensor] = self.transform(Image.fromarray(self.images[index]).convert("RGB"))
        return found


class SimCLR(pl.LightningModule):
    """As in lightly's documentation, but for the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.projection_head = SimCLRProjectionHead(1024, 256, 64)
        self.criterion = ERLoss(VonMisesFisher(kappa=10.0))  # NTXentLoss(temperature=0.1) before

    def forward(self, x: Tensor) -> Tensor:
        """Projections."""
        found: Tensor = self.projection_head(self.backbone(x))
        return found

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of two views."""
        loss: Tensor = self.criterion(self(batch[0]), self(batch[1]))
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), 1e-3)


def main() -> None:
    """Train, and print the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    pl.seed_everything(0)
    torch.set_num_threads(1)  # small tensors: more threads would only wait for each other

    digits = Digits()
    lens = LensCallback(
        lambda module, batch: (module(batch[0]), module(batch[1])),
        every=min(20, options.steps),
        held_out=DataLoader(Subset(digits, range(1397, 1797)), batch_size=100),
        on_collapse="stop",
        method="simclr",
    )
    trainer = pl.Trainer(
        max_steps=options.steps, accelerator="auto", devices=1, callbacks=[lens], logger=False, enable_checkpointing=False
    )
    trainer.fit(SimCLR(), DataLoader(Subset(digits, range(1397)), batch_size=128, shuffle=True, drop_last=True))

    for step, verdict in lens.history:
        print(f"step {step}: {verdict.name}")
    if lens.verdict is not None:
        print(lens.verdict.title, *lens.verdict.because, *lens.verdict.remedies, sep="\n  ")


if __name__ == "__main__":
    main()
