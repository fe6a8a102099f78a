"""Changes of colour of k images in 0..1, with other parameters for each sample."""

import torch
from torch import Tensor

from entrec.views.draws import Jitter

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # columns of `Jitter.position`


def luma(x: Tensor) -> Tensor:
    """Brightness (k, 1, H, W) of colour images (ITU-R 601, rounded as torchvision does); of others the channels' mean."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    red, green, blue = x.unbind(dim=1)
    return (red * 0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(1)


def blend(x: Tensor, keep: Tensor, grey: Tensor, mean: Tensor) -> Tensor:
    """`keep` x + `grey` luma(x) + `mean` mean(luma(x)), brought to 0..1; a factor (k,) of each for each sample.

    With a factor f: (f, 0, 0) is brightness, (f, 0, 1 - f) contrast, (f, 1 - f, 0) saturation, (0, 1, 0) grey and (1, 0, 0)
    no change at all.
    """
    brightness = luma(x)
    level = brightness.mean(dim=(1, 2, 3)) * mean
    target = torch.addcmul(_spread(level), brightness, _spread(grey))
    return torch.addcmul(target, x, _spread(keep)).clamp_(0, 1)


def shift_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Colour images with their hue moved by `turns` (k,) of the colour circle; largest and smallest channel stay."""
    red, green, blue = x.unbind(dim=1)
    high = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = high - low
    # The hue in sixths of the circle, from red; grey has none, and any serves.
    from_green, from_blue = torch.add(blue - red, chroma, alpha=2), torch.add(red - green, chroma, alpha=4)
    hue = torch.where(high == red, green - blue, torch.where(high == green, from_green, from_blue))
    hue = hue.div_(torch.where(chroma > 0, chroma, 1.0)).add_(6 * turns[:, None, None])
    hue = hue.sub_((hue / 6).floor_(), alpha=6)
    shares = ((hue - 3).abs_().sub_(1), 2 - (hue - 2).abs_(), 2 - (hue - 4).abs_())
    return torch.stack([torch.addcmul(low, chroma, share.clamp_(0, 1)) for share in shares], dim=1)


def jittered(x: Tensor, jitter: Jitter) -> Tensor:
    """Images (k, C, H, W) with their four changes, each sample in its own order; hue and saturation need three channels.

    The hue is the dear one of the four: it is moved once, after the changes that come before it and before the others.
    """
    if x.shape[1] != 3:
        ones = torch.ones_like(jitter.saturation)
        for turn in range(4):
            x = _turn(x, jitter._replace(saturation=ones), jitter.position == turn)
        return x
    hue = jitter.position[:, HUE, None]
    for turn in range(3):
        x = _turn(x, jitter, (jitter.position == turn) & (hue > turn))
    x = shift_hue(x, jitter.hue)
    for turn in range(1, 4):
        x = _turn(x, jitter, (jitter.position == turn) & (hue < turn))
    return x


def _turn(x: Tensor, jitter: Jitter, now: Tensor) -> Tensor:
    """The change whose turn it is `now` (k, 4) for each sample, if any of the first three is."""
    brightness = torch.where(now[:, BRIGHTNESS], jitter.brightness - 1, 0)
    contrast = torch.where(now[:, CONTRAST], jitter.contrast - 1, 0)
    saturation = torch.where(now[:, SATURATION], jitter.saturation - 1, 0)
    return blend(x, 1 + brightness + contrast + saturation, -saturation, -contrast)


def solarised(x: Tensor, applies: Tensor) -> Tensor:
    """Images with all values of one half and more inverted, where `applies` (k,); Pillow's threshold of 128."""
    return torch.where((x >= 0.5) & _spread(applies), 1 - x, x)


def _spread(x: Tensor) -> Tensor:
    """One number for each sample (k,), over its image."""
    return x[:, None, None, None]
