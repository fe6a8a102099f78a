"""A method as a LightningModule, for people with a Trainer of their own."""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from entrec.methods import IR, DeepCluster, Progress, Seen, Step, Views
from entrec.methods.step import joined
from entrec.training.draws import generator_of
from entrec.training.lars import LARS
from entrec.training.parameters import parameter_groups
from entrec.training.schedule import scaled_rate, warmup_cosine
from entrec.views.augment import Augment


class Pretraining(pl.LightningModule):
    """One of `entrec.methods` under Lightning's own Trainer: batches of images in, loss and both terms of the bound logged.

    A batch is images, uint8 or in 0..1, of shape (k, C, H, W), or a tuple or list whose first entry is that; where the method
    keeps something for each image (IR, DeepCluster), its last entry must be the images' places in the data set. The teacher,
    queue or bank is updated after each step of the optimiser, not after each accumulated batch. DeepCluster's clusters are
    made by `entrec.train` only.

    Args:
        method: for instance `SimCLR(encoder, width, options, er=True, gather=True)`.
        augment: from images to views, on the device.
        rate: learning rate of LARS for 256 images in a batch.
        batch_size: images in a step, over all devices and accumulated batches.
        weight_decay: not of biases and norms.
        warmup: part of the run in which the rate rises.
        seed: of the views.
    """

    def __init__(
        self,
        method: nn.Module,
        augment: Augment,
        *,
        rate: float = 0.3,
        batch_size: int = 256,
        weight_decay: float = 1e-6,
        warmup: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.method: Any = method
        self.augment = augment
        self.peak, self.weight_decay = scaled_rate(rate, batch_size), weight_decay
        self.warmup, self.seed = warmup, seed
        self._steps: list[Step] = []  # since the optimiser's last one

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        images, places = self._parted(batch)
        generator = generator_of(images.device, self.seed, self.global_step, batch_idx, self.global_rank)
        views = self.augment(images, generator)
        step: Step = self.method(Views(views, places, self.augment.recipe.full))
        self._steps.append(step._replace(loss=step.loss.detach()))
        with torch.no_grad():
            terms = self.method.measure(step)
        named = {"loss": step.loss, "entropy": terms.entropy, "reconstruction": terms.reconstruction}
        self.log_dict(named, prog_bar=True, batch_size=len(images))
        return step.loss

    def see(self, batch: Any) -> tuple[Seen, Seen]:
        """What the student makes of two views of a batch, drawn by torch's own generator: what the lens looks at."""
        images: Tensor = batch[0] if isinstance(batch, tuple | list) else batch
        generator = generator_of(images.device, self.seed, int(torch.randint(2**62, ())))
        first, second = self.augment.first(2)(images, generator)
        return self.method.see(first, 0), self.method.see(second, 1)

    def configure_optimizers(self) -> Optimizer:
        """LARS; the rate of each step is set by `optimizer_step`."""
        return LARS(parameter_groups(self.method, self.weight_decay), self.peak)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Set the rate, step, and let the method update what it remembers."""
        expected = self.trainer.estimated_stepping_batches
        if not math.isfinite(expected):
            raise ValueError("the Trainer must have max_epochs or max_steps: the rate's schedule ends with the run")
        total = max(1, int(expected))
        progress = Progress(min(self.global_step, total - 1), total)
        if hasattr(self.method, "prepare"):
            self.method.prepare(progress)
        for group in optimizer.param_groups:
            group["lr"] = self.peak * warmup_cosine(progress.step, round(self.warmup * total), total)

        def closure() -> Any:
            loss = optimizer_closure()
            if hasattr(self.method, "before_step"):
                self.method.before_step()
            return loss

        super().optimizer_step(epoch, batch_idx, optimizer, closure)
        if hasattr(self.method, "update"):
            self.method.update(joined(self._steps))
        self._steps.clear()

    def _parted(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Images and their places; methods that keep nothing for each image do with any places."""
        images, *rest = batch if isinstance(batch, tuple | list) else (batch,)
        per_image = isinstance(self.method, IR | DeepCluster)
        if not per_image:
            return images, torch.arange(len(images), device=images.device)
        if not rest or rest[-1].dtype != torch.int64 or rest[-1].shape != (len(images),):
            got = f"{rest[-1].dtype} of shape {tuple(rest[-1].shape)}" if rest else "images alone"
            raise ValueError(
                f"{type(self.method).__name__} keeps something for each image: the last entry of a batch must be the images' "
                f"places in the data set, int64 of shape ({len(images)},), got {got}"
            )
        return images, rest[-1]
