"""Resampling of k images by k pairs of matrices, one for the rows and one for the columns of each image.

Matrix products do a resize and a blur with other parameters for each sample, exactly and without a loop. Under
`torch.set_float32_matmul_precision("high")` they have the ten bits of TF32, which is more than pixels of eight bits hold.
"""

import torch
from torch import Tensor

from entrec.views.draws import Boxes
from entrec.views.recipe import Filter


def crop_and_resize(x: Tensor, boxes: Boxes, size: int, kind: Filter = "bilinear") -> Tensor:
    """The crops of images x (k, C, H, W), resized to (k, C, size, size) with antialiasing.

    For each sample what torchvision's `resized_crop(..., antialias=True)` computes; cubic interpolation overshoots, so its
    values are brought back to 0..1, as images of whole numbers do.
    """
    rows = resize_matrix(boxes.top, boxes.height, x.shape[-2], size, kind)
    columns = resize_matrix(boxes.left, boxes.width, x.shape[-1], size, kind)
    resized = separable(x, rows, columns)
    return resized.clamp_(0, 1) if kind == "bicubic" else resized


def separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Each image's channels with its own linear maps (k, h, H) and (k, w, W) on rows and columns: (k, C, h, w)."""
    across = (x.flatten(1, 2) @ columns.mT).view(*x.shape[:3], columns.shape[1])
    return rows[:, None] @ across


def resize_matrix(start: Tensor, length: Tensor, source: int, size: int, kind: Filter) -> Tensor:
    r"""Weights (k, size, source) that resize pixels start .. start + length of a line to `size` pixels.

    .. math:: w_{os} \propto f\Big(\frac{s + 1/2 - a - r (o + 1/2)}{\max(r, 1)}\Big), \qquad r = \text{length} / \text{size}

    with start a and a filter f as wide as an output pixel where that is the larger, so that nothing aliases.
    """
    start, length = start[:, None, None], length[:, None, None]
    scale = length / size
    pixels = torch.arange(source, device=start.device) + 0.5
    centres = start + scale * (torch.arange(size, device=start.device) + 0.5)[:, None]
    distance = ((pixels - centres) / scale.clamp(min=1)).abs()
    weights = _triangle(distance) if kind == "bilinear" else _cubic(distance)
    weights = weights * ((pixels > start) & (pixels < start + length))
    return weights / weights.sum(dim=-1, keepdim=True)


def _triangle(distance: Tensor) -> Tensor:
    return (1 - distance).clamp_(min=0)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' cubic (1981) with a = -1/2, as Pillow and the antialiased resize of PyTorch have it."""
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, far * (distance < 2))


def gaussian_blur(x: Tensor, sigma: Tensor, kernel: int, applies: Tensor) -> Tensor:
    """Images x (k, C, H, W) blurred where `applies` (k,) says so, with standard deviations sigma (k,) in pixels.

    For each sample what torchvision's `gaussian_blur` computes: `kernel` taps, and reflection at the borders.
    """
    offsets = torch.arange(kernel // 2 + 1, device=x.device)
    bell = torch.exp(-0.5 * (offsets / sigma[:, None]) ** 2)
    bell = bell / (2 * bell.sum(dim=1, keepdim=True) - 1)  # both sides, and the middle once
    taps = torch.where(applies[:, None], bell, (offsets == 0).to(bell))
    return separable(x, blur_matrix(taps, x.shape[-2]), blur_matrix(taps, x.shape[-1]))


def blur_matrix(taps: Tensor, size: int) -> Tensor:
    """Symmetric kernels, given by their taps (k, r + 1) from the middle on, as matrices (k, size, size) that reflect."""
    reach = torch.arange(taps.shape[1], device=taps.device)[:, None, None]
    here, there = torch.arange(size, device=taps.device), torch.arange(size, device=taps.device)[:, None]
    # A pixel is met where it is, as its mirror image left of the first pixel, and as that right of the last.
    met = ((there - here).abs() == reach).to(taps)
    met += (there + here == reach) & (here > 0)
    met += (2 * (size - 1) - there - here == reach) & (here < size - 1)
    return (taps @ met.flatten(1)).view(-1, size, size)


def mirrored(x: Tensor, applies: Tensor) -> Tensor:
    """Images x (k, C, H, W), those where `applies` (k,) left to right."""
    return torch.where(applies[:, None, None, None], x.flip(-1), x)
