"""The ER objective of discrete surrogates as a loss module."""

from collections.abc import Sequence

from torch import Tensor, nn

from entrec import checks
from entrec.estimators.objective import ERObjective, check_weight, discrete_er_objective


class DiscreteERLoss(nn.Module):
    """Entropy + reconstruction of discrete codes, to be minimised, in nats: `entrec.discrete_er_objective`.

    The entropy is that of the student's own softmax, averaged over the batch, with its gradient: never that of the targets,
    which would be a constant.

    Args:
        temperature: divides the student's logits.
        weight: lambda, the weight of the reconstruction; at other values than 1 the loss is no bound.
        chunks: average the entropy over that many equal parts of the batch.
        gather_distributed: the loss of all ranks' batches together instead of this rank's own (see `entrec.losses`).
        validate: check values on every eager call; `False` never waits for the device (see `entrec.raise_if_invalid`).

    Example:
        >>> import torch
        >>> loss = DiscreteERLoss()
        >>> logits = 5 * torch.eye(4)
        >>> loss(logits, logits)  # -log 4: all four codes used, each predicted with certainty
        tensor(-1.3863)
    """

    def __init__(
        self,
        temperature: float = 0.1,
        weight: float = 1.0,
        chunks: int = 1,
        gather_distributed: bool = False,
        *,
        validate: bool = True,
    ) -> None:
        super().__init__()
        checks.positive("temperature", temperature)
        check_weight(weight)
        checks.whole("chunks", chunks, 1)
        self.temperature = temperature
        self.weight = weight
        self.chunks = chunks
        self.gather_distributed = gather_distributed
        self.validate = validate

    def forward(
        self,
        logits1: Tensor,
        logits2: Tensor,
        *more: Tensor,
        targets: Sequence[Tensor] | None = None,
        predictions: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The loss of two or more views, a scalar.

        Args:
            logits1: the student's logits of the first view, shape (k, d).
            logits2: those of the second view, row i of the same datum.
            *more: those of further views.
            targets: the codes of the first views as probabilities; no gradient flows into them.
            predictions: the predictor's logits, one per view; the entropy stays that of logits1, logits2, ...
        """
        return self.terms(logits1, logits2, *more, targets=targets, predictions=predictions).loss

    def terms(
        self,
        logits1: Tensor,
        logits2: Tensor,
        *more: Tensor,
        targets: Sequence[Tensor] | None = None,
        predictions: Sequence[Tensor] | None = None,
    ) -> ERObjective:
        """The loss with its two terms, `ERObjective(loss, entropy, reconstruction)`, to log them from the same pass."""
        return discrete_er_objective(
            (logits1, logits2, *more),
            self.temperature,
            self.weight,
            self.chunks,
            targets=targets,
            predictions=predictions,
            gather_distributed=self.gather_distributed,
            validate=self.validate,
        )

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return (
            f"temperature={self.temperature}, weight={self.weight}, chunks={self.chunks}, "
            f"gather_distributed={self.gather_distributed}"
        )
