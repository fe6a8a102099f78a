"""What NT-Xent, InfoNCE and the memory bank's loss have in common: a temperature, and how their pairs are summed."""

from typing import Any

from torch import Tensor, nn

from entrec.estimators.entropy import checked_how
from entrec.losses.views import checked_temperature, directions
from entrec.pairwise import Backend, How, Precision


class Contrastive(nn.Module):
    """The settings of a contrastive loss; each loss says what they mean to it."""

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        gather_distributed: bool = False,
        *,
        precision: Precision = "fast",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__()
        self.temperature = checked_temperature(temperature)
        self.gather_distributed = gather_distributed
        self.precision, self.backend, _ = checked_how(precision, backend)
        self.validate = validate

    def checked(self, views: dict[str, Tensor], **bank: Any) -> tuple[Tensor, How, float | Tensor]:
        """The views as one tensor (V, k, d), how to sum, and the temperature as a scalar."""
        temperature = self.temperature.reshape(()) if isinstance(self.temperature, Tensor) else self.temperature
        how = How(self.precision, self.backend)
        stacked, how = directions(views, how, self.gather_distributed, self.validate, temperature=temperature, **bank)
        return stacked, how, temperature

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return f"temperature={self.temperature}, gather_distributed={self.gather_distributed}"
