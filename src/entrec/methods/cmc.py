"""CMC (Tian et al., 2020): InfoNCE between all pairs of views, one encoder for all or one each."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from entrec.branches.heads import mlp
from entrec.estimators import ERObjective
from entrec.estimators.entropy import Estimator
from entrec.losses import InfoNCELoss
from entrec.methods.continuous import ContinuousER
from entrec.methods.step import Seen, Step, Views, together

RECIPE = "simclr"  # as in the ER paper; data whose samples are several views bring their own


@dataclass(frozen=True)
class Options:
    """The ER paper's: SimCLR's head and temperature.

    Args:
        shared: one encoder for all views; otherwise one each, and the first view's is the one that is kept.
    """

    temperature: float = 0.1
    kappa: float = 10.0
    estimator: Estimator = "plugin"
    weight: float = 1.0
    views: int = 2
    shared: bool = True
    hidden: int = 2048
    dim: int = 128


def defaults(width: int, small: bool) -> Options:
    """For features of this width."""
    return Options(hidden=width)


class CMC(nn.Module):
    """One branch for all views or one each; with `er` the bound takes InfoNCE's place.

    Where branches are not shared, `others` are the encoders of the views after the first, all as wide as it.
    """

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        options: Options,
        er: bool,
        gather: bool,
        others: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        wanted = 0 if options.shared else options.views - 1
        if len(others) != wanted:
            raise ValueError(
                f"others must be {wanted} encoders, one for each view but the first unless shared, got {len(others)}"
            )
        self.encoder = encoder
        self.other_encoders = nn.ModuleList(others)
        self.projectors = nn.ModuleList(mlp(width, options.hidden, options.dim) for _ in range(1 + wanted))
        self.er = ContinuousER(options.kappa, options.estimator, options.weight, gather)
        self.with_er = er
        self.loss = None if er else InfoNCELoss(options.temperature, gather_distributed=gather, validate=False)

    def forward(self, views: Views) -> Step:
        """Encode each view by its branch, compare all pairs."""
        if len(self.projectors) == 1:
            features = together(self.encoder, views.images)
            z = together(self.projectors[0], features)
        else:
            encoders = (self.encoder, *self.other_encoders)
            features = tuple(encoder(x) for encoder, x in zip(encoders, views.images, strict=True))
            z = tuple(projector(x) for projector, x in zip(self.projectors, features, strict=True))
        step = Step(z[0], features[0].detach(), z)
        loss = self.er.pairs(step).loss if self.loss is None else self.loss(*z)
        return step._replace(loss=loss)

    def see(self, images: Tensor, view: int = 0) -> Seen:
        """The projections of images that are view number `view`."""
        branch = 0 if len(self.projectors) == 1 else view
        encoder = (self.encoder, *self.other_encoders)[branch]
        return Seen(self.projectors[branch](encoder(images)))

    def measure(self, step: Step) -> ERObjective:
        """Entropy and reconstruction in nats."""
        return self.er.pairs(step, measured=True)
