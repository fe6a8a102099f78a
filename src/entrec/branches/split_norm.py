"""BatchNorm with the statistics of parts of a batch, as if each part had a device of its own."""

import torch
from torch import Tensor, nn

from entrec import checks


class SplitBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm of each of a number of equal parts of the batch by itself, in training; in eval mode, and on disk, BatchNorm.

    What MoCo's shuffled BatchNorm (He et al., 2020, Section 3.3) wants of several devices, on one. The running statistics
    follow the means of the parts' statistics. Where `interleaved`, a part is every so-manieth row and not rows in a row: the
    order of a batch is random, so that queries and keys whose parts differ in this way are as good as shuffled, and no row has
    to be moved.

    Args:
        features: channels.
        splits: parts; a batch must be a multiple of it.
        eps: added to the variance.
        momentum: of the running statistics, the weight of the new ones.

    Example:
        >>> x = torch.tensor([1.0, 3.0, 10.0, 30.0]).reshape(4, 1, 1, 1)
        >>> SplitBatchNorm2d(1, splits=2, eps=0.0)(x).flatten()
        tensor([-1.,  1., -1.,  1.], grad_fn=<ViewBackward0>)
    """

    def __init__(self, features: int, splits: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(features, eps, momentum)
        self.splits, self.interleaved = checks.whole("splits", splits, 1), False

    def forward(self, x: Tensor) -> Tensor:
        """The batch (k, C, H, W), each part with mean 0 and variance 1 before weight and bias; in float32 or better."""
        if not self.training:
            return super().forward(x)
        if len(x) % self.splits:
            raise ValueError(f"a batch must be a multiple of the {self.splits} splits of BatchNorm, got {len(x)} rows")
        rows = 0 if self.interleaved else 1
        parts = checks.at_least_float32(x.unflatten(0, (-1, self.splits) if self.interleaved else (self.splits, -1)))
        variance, mean = torch.var_mean(parts, dim=(rows, 3, 4), correction=0, keepdim=True)
        self._follow(mean, variance, x.numel() // (self.splits * x.shape[1]))
        found = (parts - mean) * (variance + self.eps).rsqrt() * self.weight[:, None, None] + self.bias[:, None, None]
        return found.flatten(0, 1).to(x.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, values: int) -> None:
        """The running statistics; the variance's is the unbiased one, as BatchNorm's."""
        assert self.running_mean is not None  # they are tracked
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.mean(dim=(0, 1)).flatten(), self.momentum)
        self.running_var.lerp_(variance.mean(dim=(0, 1)).flatten() * (values / max(values - 1, 1)), self.momentum)
        self.num_batches_tracked.add_(1)

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        return f"{self.num_features}, splits={self.splits}, interleaved={self.interleaved}"


def split_norms(module: nn.Module, splits: int) -> None:
    """Let every `nn.BatchNorm2d` in a module see so many parts of a batch apart, in place; with 1, nothing changes.

    Raises:
        ValueError: there is none, or one that cannot be replaced.
    """
    if checks.whole("splits", splits, 1) == 1:
        return
    found = [(name, part) for name, part in module.named_modules() if type(part) is nn.BatchNorm2d]
    if not found or any(part.running_mean is None or not part.affine or part.momentum is None for _, part in found):
        raise ValueError(f"splits={splits} needs an encoder of plain BatchNorm2d layers, and {type(module).__name__} is none")
    for name, part in found:
        assert part.momentum is not None
        new = SplitBatchNorm2d(part.num_features, splits, part.eps, part.momentum)
        new.load_state_dict(part.state_dict())
        module.set_submodule(name, new)


def interleave_splits(module: nn.Module) -> None:
    """Let the split norms in a module take their parts in the other way."""
    for part in module.modules():
        if isinstance(part, SplitBatchNorm2d):
            part.interleaved = True
