"""A small residual network for small images on one laptop core."""

import torch
from torch import Tensor, nn

from entrec import checks


class Tiny(nn.Module):
    """Three residual blocks of 32, 64 and 128 channels at 1/2, 1/4 and 1/8 of the side; images (k, C, s, s) -> (k, 256).

    12.8 million multiply-adds and 0.34 million parameters at 3 x 32 x 32, where ResNet-18 with a small stem needs 555 and 11.
    The stem halves the side at once, as most of a small network's time goes into its largest maps. Weights and maps are
    channels-last, in which CPUs convolve faster. Sides from 8 pixels on; any side is as good as another.

    Args:
        channels: of an image.

    Example:
        >>> Tiny()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 256])
    """

    width = 256

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        checks.whole("channels", channels, 1)
        self.stem = _convolution(channels, 32, kernel=3, stride=2)
        self.blocks = nn.Sequential(_Block(32, 32, stride=1), _Block(32, 64, stride=2), _Block(64, 128, stride=2))
        self.last = _convolution(128, self.width, kernel=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Features (k, 256): non-negative, the mean over the last map."""
        x = images.contiguous(memory_format=torch.channels_last)
        x = torch.relu(self.stem(x))
        x = torch.relu(self.last(self.blocks(x)))
        return x.mean(dim=(2, 3))


class _Block(nn.Module):
    """Two convolutions around which the input is carried, averaged over 2 x 2 pixels where the stride is 2."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(channels, out, kernel=3, stride=stride)
        self.second = _convolution(out, out, kernel=3)
        self.carry: nn.Module = nn.Identity()
        if stride > 1:  # rounded up, as a strided convolution with padding does
            self.carry = nn.Sequential(nn.AvgPool2d(stride, ceil_mode=True), *_convolution(channels, out, kernel=1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.relu(self.first(x)))
        return torch.relu(y + self.carry(x))


def _convolution(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out))
