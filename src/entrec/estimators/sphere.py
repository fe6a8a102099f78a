r"""Constants of the unit sphere S^{d-1} in R^d and of the von Mises-Fisher distribution on it, in nats."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators.bessel import bessel_i_ratio, log_bessel_i_over_power
from entrec.estimators.compiling import as_constant


def log_sphere_area(dim: int) -> float:
    r"""Logarithm of the area of S^{d-1}, :math:`\log 2 + \frac d2 \log \pi - \log \Gamma(\frac d2)`.

    This is also the entropy of the uniform distribution, the largest that a density on the sphere can have.

    >>> round(log_sphere_area(1000), 2)
    -2032.06
    """
    checks.whole("dim", dim, 1)
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


def vmf_log_normalizer(kappa: float | Tensor, dim: int) -> float | Tensor:
    r"""Logarithm of the von Mises-Fisher constant, :math:`\log C_d(\kappa)`.

    .. math:: C_d(\kappa) = \frac{\kappa^\nu}{(2\pi)^{d/2} I_\nu(\kappa)}, \quad \nu = d/2 - 1

    Its derivative is minus `vmf_mean_cosine`, and autograd finds it to 14 digits: the terms of the series neither cancel nor
    do their derivatives.
    """
    dim = as_constant(dim)  # or torch.compile would trace the series with a symbol
    if isinstance(kappa, Tensor):
        constant = dim / 2 * math.log(2 * math.pi)
        return (-log_bessel_i_over_power(dim / 2 - 1, kappa.double()) - constant).to(_float_dtype(kappa))
    if torch.compiler.is_compiling():
        return _vmf_log_normalizer(as_constant(kappa), dim)
    return _known_vmf_log_normalizer(kappa, dim)


def _vmf_log_normalizer(kappa: float, dim: int) -> float:
    return -log_bessel_i_over_power(dim / 2 - 1, kappa) - dim / 2 * math.log(2 * math.pi)


_known_vmf_log_normalizer = lru_cache(maxsize=1024)(_vmf_log_normalizer)  # a loss asks for the same one at every step


def vmf_mean_cosine(kappa: float | Tensor, dim: int) -> float | Tensor:
    r"""Mean of cos(z, mean direction) under von Mises-Fisher: the ratio :math:`A_d = I_{d/2}(\kappa) / I_{d/2-1}(\kappa)`."""
    dim = as_constant(dim)
    if isinstance(kappa, Tensor):
        return bessel_i_ratio(dim / 2 - 1, kappa.double()).to(_float_dtype(kappa))
    return bessel_i_ratio(dim / 2 - 1, as_constant(kappa))


def _float_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
