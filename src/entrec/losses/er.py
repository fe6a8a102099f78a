"""The ER objective as a loss module."""

from collections.abc import Sequence

from torch import Tensor, nn

from entrec import checks
from entrec.estimators.density import Density, check_density
from entrec.estimators.entropy import Estimator, checked_how
from entrec.estimators.objective import ERObjective, check_weight, er_objective
from entrec.pairwise import Backend, Precision


class ERLoss(nn.Module):
    """Entropy + reconstruction of continuous projections, to be minimised, in nats: `entrec.er_objective`.

    Projections come as the head gives them: for a density on the sphere only their directions count. Half precision is
    computed in float32. At `weight=1`, with Joe's estimator and no teacher, minus the loss is `entrec.er_bound(...).value`; at
    other weights it is an objective and no bound. A density's parameter that is an `nn.Parameter` becomes one of the loss.

    Args:
        density: the reconstruction density; `VonMisesFisher(1 / temperature)` for a cosine similarity.
        kernel: the kernel of the entropy estimate; the density itself if not given.
        estimator: `"plugin"` (the paper's experiments) or `"joe"`.
        weight: lambda, the weight of the reconstruction.
        leave_one_out: leave out each point's own kernel.
        gather_distributed: the loss of all ranks' batches together instead of this rank's own (see `entrec.losses`).
        precision: of the pairwise sums, `"fast"` or `"ieee"` (see `entrec.pairwise_logsumexp`).
        backend: what computes them, `"auto"`, `"dense"`, `"tiled"` or `"triton"`.
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> import torch
        >>> from entrec import VonMisesFisher
        >>> loss = ERLoss(VonMisesFisher(kappa=10.0))
        >>> z = torch.eye(4)
        >>> loss(z, z)  # -log 4, but for the pull of the other points' kernels
        tensor(-1.3862)
    """

    def __init__(
        self,
        density: Density,
        kernel: Density | None = None,
        estimator: Estimator = "plugin",
        weight: float = 1.0,
        leave_one_out: bool = False,
        gather_distributed: bool = False,
        *,
        precision: Precision = "fast",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__()
        check_density("density", density)
        if kernel is not None:
            check_density("kernel", kernel)
        checks.choice("estimator", estimator, Estimator)
        check_weight(weight)
        self.density = density
        self.kernel = kernel
        self.estimator: Estimator = estimator
        self.weight = weight
        self.leave_one_out = leave_one_out
        self.gather_distributed = gather_distributed
        self.precision, self.backend, _ = checked_how(precision, backend)
        self.validate = validate
        for owner, of in (("density", density), ("kernel", kernel)):
            for name, value in of.arguments.items() if of is not None else ():
                if isinstance(value, nn.Parameter):
                    self.register_parameter(f"{owner}_{name}", value)

    def forward(
        self,
        z1: Tensor,
        z2: Tensor,
        *more: Tensor,
        targets: Sequence[Tensor] | None = None,
        predictions: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The loss of two or more views, a scalar.

        Args:
            z1: the student's projections of the first view, shape (k, d).
            z2: those of the second view, row i of the same datum.
            *more: those of further views.
            targets: the teacher's projections of the first views, a pair like (z1, z2); no gradient flows into them.
            predictions: the predictor's outputs, one per view; the entropy stays that of z1, z2, ...
        """
        return self.terms(z1, z2, *more, targets=targets, predictions=predictions).loss

    def terms(
        self,
        z1: Tensor,
        z2: Tensor,
        *more: Tensor,
        targets: Sequence[Tensor] | None = None,
        predictions: Sequence[Tensor] | None = None,
    ) -> ERObjective:
        """The loss with its two terms, `ERObjective(loss, entropy, reconstruction)`, to log them from the same pass."""
        return er_objective(
            (z1, z2, *more),
            self.density,
            self.kernel,
            self.estimator,
            self.weight,
            self.leave_one_out,
            targets=targets,
            predictions=predictions,
            precision=self.precision,
            backend=self.backend,
            gather_distributed=self.gather_distributed,
            validate=self.validate,
        )

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return (
            f"density={self.density}, kernel={self.kernel}, estimator={self.estimator!r}, weight={self.weight}, "
            f"leave_one_out={self.leave_one_out}, gather_distributed={self.gather_distributed}"
        )
