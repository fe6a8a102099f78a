"""SimCLR (Chen et al., 2020): identical branches, projections as they are, NT-Xent."""

from dataclasses import dataclass

from torch import Tensor, nn

from entrec.branches.heads import mlp
from entrec.estimators import ERObjective
from entrec.estimators.entropy import Estimator
from entrec.losses import NTXentLoss
from entrec.methods.continuous import ContinuousER
from entrec.methods.step import Seen, Step, Views, each, together

RECIPE = "simclr"


@dataclass(frozen=True)
class Options:
    """SimCLR's: temperature 0.1 and a head as wide as the features (the paper's Appendix B); kappa is 1 / temperature.

    Args:
        norm_last: a BatchNorm at the head's end too.
        shared_statistics: BatchNorm sees the rows of both views together, as SimCLR has it; otherwise each view's alone.
    """

    temperature: float = 0.1
    kappa: float = 10.0
    estimator: Estimator = "plugin"
    weight: float = 1.0
    views: int = 2
    hidden: int = 2048
    dim: int = 128
    norm_last: bool = False
    shared_statistics: bool = True


def defaults(width: int, small: bool) -> Options:
    """For features of this width."""
    return Options(hidden=width)


class SimCLR(nn.Module):
    """One branch for all views; with `er` the bound takes NT-Xent's place."""

    def __init__(self, encoder: nn.Module, width: int, options: Options, er: bool, gather: bool) -> None:
        super().__init__()
        if options.views != 2 and not er:
            raise ValueError(
                f"NT-Xent compares 2 views, got views={options.views}: method cmc takes any number, and so does er"
            )
        self.encoder = encoder
        self.projector = mlp(width, options.hidden, options.dim, norm_last=options.norm_last, affine_last=True)
        self.passed = together if options.shared_statistics else each
        self.er = ContinuousER(options.kappa, options.estimator, options.weight, gather)
        self.with_er = er
        self.loss = None if er else NTXentLoss(options.temperature, gather_distributed=gather, validate=False)

    def forward(self, views: Views) -> Step:
        """Encode all views, project, compare."""
        features = self.passed(self.encoder, views.images)
        z = self.passed(self.projector, features)
        step = Step(z[0], features[0].detach(), z)
        loss = self.er.pairs(step).loss if self.loss is None else self.loss(*z)
        return step._replace(loss=loss)

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The student's projections of images."""
        return Seen(self.projector(self.encoder(images)))

    def measure(self, step: Step) -> ERObjective:
        """Entropy and reconstruction in nats."""
        return self.er.pairs(step, measured=True)
