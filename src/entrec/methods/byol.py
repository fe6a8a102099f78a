"""BYOL (Grill et al., 2020): the student's predictor finds the teacher's projection of the other view."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from entrec.branches.ema import Teacher, cosine_ema
from entrec.branches.heads import mlp
from entrec.estimators import ERObjective
from entrec.estimators.entropy import Estimator
from entrec.losses import BYOLLoss
from entrec.methods.continuous import ContinuousER
from entrec.methods.step import Progress, Seen, Step, Views, each

RECIPE = "byol"


@dataclass(frozen=True)
class Options:
    """BYOL's heads (4096 wide for 2048 features, 256 out) and the ER paper's EMA and kappa.

    Args:
        ema: how slowly the teacher follows; 0: it is last step's student; None: it is the student itself, without gradient.
        predictor_rate: the predictor's learning rate, in units of the others'. A predictor that is nearly optimal at every step
            is what keeps BYOL from collapsing (Grill et al., 2020, Appendix I), so a factor of 10 helps where it does
            (the tiny encoder's default).
        norm: BatchNorm in projector and predictor, without which BYOL leans on a slow teacher far more.
        predictor_norm: whether the predictor has one, where that differs from the projector; None: as `norm`.
        predictor: whether there is one; without it and without an EMA, all that is left is to agree on one point.
        schedule: `"constant"`, as in the ER paper's ablation; `"cosine"` raises the EMA to 1 over the run, as BYOL did.
        scale: of BYOL's own loss, 2 - 2 cos; one half makes its gradient that of minus the cosine, as others have it.
    """

    kappa: float = 10.0
    estimator: Estimator = "plugin"
    weight: float = 1.0
    views: int = 2
    ema: float | None = 0.99
    schedule: Literal["constant", "cosine"] = "constant"
    predictor_rate: float = 1.0
    hidden: int = 4096
    dim: int = 256
    norm: bool = True
    predictor_norm: bool | None = None
    predictor: bool = True
    scale: float = 1.0


def defaults(width: int, small: bool) -> Options:
    """For features of this width."""
    return Options(hidden=2 * width)


class BYOL(nn.Module):
    """Student with predictor, teacher; with `er` the student's entropy joins, before the predictor."""

    coefficient: Tensor

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(width, options.hidden, options.dim, norm=options.norm)
        norm = options.norm if options.predictor_norm is None else options.predictor_norm
        head = mlp(options.dim, options.hidden, options.dim, norm=norm)
        self.predictor = head if options.predictor else nn.Identity()
        self.teacher = None if options.ema is None else Teacher(nn.Sequential(self.encoder, self.projector))
        self.ema, self.schedule = options.ema, options.schedule
        # On the device, as it may change with every step.
        self.register_buffer("coefficient", torch.tensor(options.ema or 0.0, dtype=torch.float64), persistent=False)
        self.er = ContinuousER(options.kappa, options.estimator, options.weight, gather)
        self.with_er = er
        self.loss = None if er else BYOLLoss(validate=False)
        self.scale = options.scale

    def forward(self, views: Views) -> Step:
        """All views predict the teacher's projections of the others."""
        features = each(self.encoder, views.images)
        z = each(self.projector, features)
        predictions = each(self.predictor, z)
        full = views.images[: views.full]
        with torch.no_grad():
            targets = tuple(x.detach() for x in z[: views.full]) if self.teacher is None else each(self.teacher, full)
        step = Step(z[0], features[0].detach(), z, targets, predictions)
        loss = self.er.pairs(step).loss if self.loss is None else self.scale * self.loss(predictions, targets)
        return step._replace(loss=loss)

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The student's projections of images."""
        return Seen(self.projector(self.encoder(images)))

    def measure(self, step: Step) -> ERObjective:
        """Entropy of the student, in the teacher's space, and reconstruction of the teacher, in nats."""
        return self.er.pairs(step, measured=True)

    def prepare(self, progress: Progress) -> None:
        """Set the teacher's coefficient for this step."""
        if self.ema is not None and self.schedule == "cosine":
            self.coefficient.fill_(cosine_ema(self.ema, *progress))

    def update(self, step: Step) -> None:
        """The teacher follows the student."""
        if self.teacher is not None and self.ema is not None:
            ema = self.coefficient if self.schedule == "cosine" else self.ema
            self.teacher.update(nn.Sequential(self.encoder, self.projector), ema)
