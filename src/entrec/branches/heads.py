"""What stands on a backbone: projection heads, predictors and prototypes."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from entrec import checks


def mlp(
    width: int,
    hidden: int,
    out: int,
    layers: int = 2,
    norm: bool = True,
    norm_last: bool = False,
    bias_last: bool = True,
    affine_last: bool = False,
) -> nn.Sequential:
    """The projection head of SimCLR and MoCo, and BYOL's projection head and predictor; (k, width) -> (k, out).

    Linear, BatchNorm and ReLU for each layer but the last, which is linear. A BatchNorm has a bias of its own, so the linear
    maps before one have none.

    Args:
        width: of the features.
        hidden: of the layers between.
        out: of the projections.
        layers: linear maps in all; 1 is a linear head.
        norm: BatchNorm before each ReLU.
        norm_last: end with a BatchNorm, as SimCLR's and SimSiam's heads do.
        bias_last: whether the last linear map has a bias, where no BatchNorm follows.
        affine_last: whether that BatchNorm has affine parameters; SimCLR's and SimSiam's have none, lightly's has.
    """
    for name, x in (("width", width), ("hidden", hidden), ("out", out), ("layers", layers)):
        checks.whole(name, x, 1)
    widths = [width] + [hidden] * (layers - 1)
    parts: list[nn.Module] = []
    for i, o in pairwise(widths):
        parts += [nn.Linear(i, o, bias=not norm), *([nn.BatchNorm1d(o)] if norm else []), nn.ReLU(inplace=True)]
    parts.append(nn.Linear(widths[-1], out, bias=bias_last and not norm_last))
    if norm_last:
        parts.append(nn.BatchNorm1d(out, affine=affine_last))
    return nn.Sequential(*parts)


class DINOOutput(NamedTuple):
    """The unit vectors before the last layer, (k, bottleneck), and the logits after it, (k, out)."""

    bottleneck: Tensor
    logits: Tensor


class DINOHead(nn.Module):
    """DINO's head: a GELU network to a bottleneck on the sphere, and its cosines with learnt directions as logits.

    Caron et al. (2021), Appendix C. The last layer is weight-normalised with its gains fixed at 1: a logit is a cosine,
    between -1 and 1, and is sharpened by the loss's temperature. Normalisation is computed in float32.

    Args:
        width: of the features.
        hidden: of the network's inner layers.
        bottleneck: dimensions of the sphere.
        out: directions, the codes of the discrete surrogate.
        layers: linear maps up to the bottleneck.
        norm: BatchNorm after each inner map, for convolutional encoders, as DINO's code has it: the features of a new one are
            all nearly parallel, and so would be the bottleneck's.
    """

    def __init__(
        self, width: int, hidden: int = 2048, bottleneck: int = 256, out: int = 65536, layers: int = 3, norm: bool = False
    ) -> None:
        super().__init__()
        sizes = (("width", width), ("hidden", hidden), ("bottleneck", bottleneck), ("out", out), ("layers", layers))
        for name, x in sizes:
            checks.whole(name, x, 1)
        widths = [width] + [hidden] * (layers - 1)
        parts: list[nn.Module] = []
        for i, o in pairwise(widths):
            parts += [nn.Linear(i, o, bias=not norm), *([nn.BatchNorm1d(o)] if norm else []), nn.GELU()]
        self.network = nn.Sequential(*parts, nn.Linear(widths[-1], bottleneck))
        self.last = nn.Linear(bottleneck, out, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> DINOOutput:
        """Bottleneck and logits of features (k, width)."""
        z = self.bottleneck(x)
        return DINOOutput(z, _cosines(z, _directions(self.last.weight)))

    def bottleneck(self, x: Tensor) -> Tensor:
        """The unit vectors alone, (k, width) -> (k, bottleneck)."""
        return _directions(self.network(x))


class Prototypes(nn.Module):
    """SwAV's prototypes: the cosine of each projection with each of a number of learnt directions; (k, dim) -> (k, number).

    Caron et al. (2020). The rows of `weight` are unit vectors at the start and after `normalise_()`, which the training step
    calls after the optimiser's.

    Args:
        dim: of the projections, which are normalised here.
        number: prototypes.
    """

    def __init__(self, dim: int, number: int) -> None:
        super().__init__()
        checks.whole("dim", dim, 1)
        checks.whole("number", number, 1)
        self.weight = nn.Parameter(torch.randn(number, dim))
        self.normalise_()

    def forward(self, x: Tensor) -> Tensor:
        """Scores (k, number)."""
        return _cosines(_directions(x), self.weight)

    @torch.no_grad()
    def normalise_(self) -> None:
        """Put the prototypes back on the sphere."""
        self.weight.copy_(_directions(self.weight))

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        number, dim = self.weight.shape
        return f"dim={dim}, number={number}"


def _cosines(x: Tensor, directions: Tensor) -> Tensor:
    """Products in float32 or better, also under autocast: bfloat16 has steps of 0.004 near 1, which temperatures make 0.1."""
    with torch.autocast(x.device.type, enabled=False):
        return functional.linear(x, checks.at_least_float32(directions))


def _directions(x: Tensor) -> Tensor:
    """Rows of length one in float32 or better; a zero row stays zero."""
    return functional.normalize(checks.at_least_float32(x), dim=-1)
