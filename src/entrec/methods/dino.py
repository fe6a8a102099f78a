"""DINO (Caron et al., 2021): self-distillation of centred and sharpened softmax outputs, with multi-crop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from entrec.branches.centring import Centre, teacher_probabilities
from entrec.branches.ema import Teacher, cosine_ema
from entrec.branches.heads import DINOHead, DINOOutput
from entrec.estimators import ERObjective, discrete_er_objective
from entrec.losses import DINOLoss
from entrec.methods.continuous import ContinuousER
from entrec.methods.step import Progress, Seen, Step, Views, each, together

RECIPE = "dino"


@dataclass(frozen=True)
class Options:
    """DINO's: temperatures 0.1 and 0.04, centre momentum 0.9, EMA 0.996 rising to 1, 65,536 codes, a bottleneck of 256.

    Args:
        ema: how slowly the teacher follows; 0: it is last step's student; None: it is the student itself, without gradient.
        centring: subtract the running mean of the teacher's logits; the ER paper trains without it.
        estimator: of ER's entropy: `"discrete"` of the student's codes, or `"joe"` and `"plugin"` of its bottleneck.
        codes: outputs of the head.
        norm: BatchNorm in the head, for convolutional encoders.
        layers: linear maps of the head up to its bottleneck.
        shared_statistics: BatchNorm sees the rows of all views of a size together, as DINO has it; otherwise each view's alone.
        small_crops: further views, of a part of the image and a smaller size, that only the student sees.
    """

    temperature: float = 0.1
    teacher_temperature: float = 0.04
    kappa: float = 10.0
    estimator: Literal["discrete", "joe", "plugin"] = "discrete"
    weight: float = 1.0
    views: int = 2
    small_crops: int = 8
    ema: float | None = 0.996
    schedule: Literal["constant", "cosine"] = "cosine"
    centring: bool = True
    centre_momentum: float = 0.9
    codes: int = 65536
    hidden: int = 2048
    bottleneck: int = 256
    norm: bool = False
    layers: int = 3
    shared_statistics: bool = True


def defaults(width: int, small: bool) -> Options:
    """For features of this width; small images: no small crops, 1024 codes, EMA 0.99, as their runs are short, and norms."""
    if small:
        return Options(small_crops=0, ema=0.99, codes=1024, hidden=2 * width, bottleneck=128, norm=True)
    return Options(hidden=max(2048, width))


class DINO(nn.Module):
    """Student and teacher with a head each; with `er` the student's entropy joins, of its codes or of its bottleneck."""

    coefficient: Tensor

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = DINOHead(width, options.hidden, options.bottleneck, options.codes, options.layers, options.norm)
        self.teacher = None if options.ema is None else Teacher(nn.Sequential(self.encoder, self.head))
        # On the device, as it may change with every step.
        self.register_buffer("coefficient", torch.tensor(options.ema or 0.0, dtype=torch.float64), persistent=False)
        self.centre = Centre(options.codes, options.centre_momentum)
        self.options, self.gather, self.with_er = options, gather, er
        self.continuous = None
        if er and options.estimator != "discrete":
            self.continuous = ContinuousER(options.kappa, options.estimator, options.weight, gather)
            self.head.last.requires_grad_(False)  # it has no part in the loss, and DistributedDataParallel would wait for it
        self.loss = DINOLoss(options.temperature, validate=False)

    def forward(self, views: Views) -> Step:
        """The student's codes of every view against the teacher's of the other full-size ones."""
        features = (together if self.options.shared_statistics else each)(self.encoder, views.images)
        outputs = self._rows(self.head, features)
        with torch.no_grad():
            teacher = self._rows(self._as_teacher if self.teacher is None else self.teacher, views.images[: views.full])
        if self.continuous is not None:
            z, targets = outputs.bottleneck.chunk(len(features)), teacher.bottleneck.chunk(views.full)
        else:
            centre = self.centre.value if self.options.centring else torch.zeros_like(self.centre.value)
            probabilities = teacher_probabilities(teacher.logits, centre, self.options.teacher_temperature)
            z, targets = outputs.logits.chunk(len(features)), probabilities.chunk(views.full)
        step = Step(z[0], features[0].detach(), tuple(z), tuple(targets), kept=(teacher.logits.detach(),))
        return step._replace(loss=self._loss(step))

    def _rows(self, module: Callable[[Tensor], DINOOutput], views: tuple[Tensor, ...]) -> DINOOutput:
        """The module's output of all views' rows, one view below the other."""
        if self.options.shared_statistics:
            return module(torch.cat(views))
        return DINOOutput(*(torch.cat(part) for part in zip(*map(module, views), strict=True)))

    def _as_teacher(self, images: Tensor) -> DINOOutput:
        """The student in the teacher's place."""
        found: DINOOutput = self.head(self.encoder(images))
        return found

    def _loss(self, step: Step) -> Tensor:
        if self.with_er:
            return self._objective(step).loss
        found: Tensor = self.loss(step.student, step.targets)
        return found

    def _objective(self, step: Step, measured: bool = False) -> ERObjective:
        if self.continuous is not None:
            return self.continuous.pairs(step, measured)
        o = self.options
        return discrete_er_objective(
            step.student, o.temperature, o.weight, targets=step.targets, gather_distributed=self.gather, validate=False
        )

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The student's logits of the codes; with a continuous `er` its bottleneck, as the codes are not learnt then."""
        found = self.head(self.encoder(images))
        if self.continuous is not None:
            return Seen(found.bottleneck)
        return Seen(found.logits / self.options.temperature, codes=True)

    def measure(self, step: Step) -> ERObjective:
        """Entropy of the student's codes (or bottleneck) and reconstruction of the teacher's, in nats."""
        return self._objective(step, measured=True)

    def prepare(self, progress: Progress) -> None:
        """Set the teacher's coefficient for this step."""
        if self.options.ema is not None and self.options.schedule == "cosine":
            self.coefficient.fill_(cosine_ema(self.options.ema, *progress))

    def update(self, step: Step) -> None:
        """The centre moves towards this batch's mean, the teacher towards the student."""
        if self.options.centring:
            self.centre.update(step.kept[0])
        if self.teacher is not None and self.options.ema is not None:
            ema = self.coefficient if self.options.schedule == "cosine" else self.options.ema
            self.teacher.update(nn.Sequential(self.encoder, self.head), ema)
