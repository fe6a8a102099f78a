"""What the losses are measured on."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def unit_views(k: int, d: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Two views of k random points on the sphere, the same on every device, with a cosine of about 1/2; (2, k, d)."""
    generator = torch.Generator().manual_seed(0)
    data, noise = torch.randn(1, k, d, generator=generator), torch.randn(2, k, d, generator=generator)
    return normalize(data + noise, dim=-1).to(device, dtype)
