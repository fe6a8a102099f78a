r"""The families of densities q(z2 | z1), each also the kernel of a density estimate (ER paper, Section 4.1)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators import density, sphere
from entrec.estimators.density import Parameter
from entrec.pairwise import Similarity


@dataclass(frozen=True)
class VonMisesFisher:
    r"""Von Mises-Fisher on the sphere: :math:`\log q = \kappa \cos(z_2, z_1) + \log C_d(\kappa)`.

    A cosine similarity at temperature tau is this density with kappa = 1/tau; BYOL's squared distance of unit vectors is the
    one with kappa = 2. Its width as a kernel is :math:`\kappa^{-1/2}`, in d - 1 dimensions.

    Args:
        kappa: concentration, positive.

    Example:
        >>> VonMisesFisher(kappa=1.0).with_bandwidth(0.1)
        VonMisesFisher(kappa=10.0)
    """

    kappa: Parameter
    on_sphere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a kappa that is not positive."""
        object.__setattr__(self, "kappa", checks.positive("kappa", self.kappa))

    @property
    def similarity(self) -> Similarity:
        """The dot product, of unit vectors."""
        return "dot"

    @property
    def factor(self) -> Parameter:
        """Kappa."""
        return _wide(self.kappa)

    @property
    def unit(self) -> Parameter:
        """1: directions have no scale."""
        return 1.0

    @property
    def arguments(self) -> dict[str, Parameter]:
        """Kappa."""
        return {"kappa": self.kappa}

    def log_normalizer(self, dim: int) -> Parameter:
        r""":math:`\log C_d = \nu \log \kappa - \frac d2 \log 2\pi - \log I_\nu(\kappa)`, nu = d/2 - 1; to 13 digits."""
        return sphere.vmf_log_normalizer(_wide(self.kappa), checks.whole("dim", dim, 2))

    def entropy(self, dim: int) -> Parameter:
        r"""Differential entropy :math:`-\log C_d - \kappa A_d(\kappa)`, in nats."""
        kappa = _wide(self.kappa)
        return -self.log_normalizer(dim) - kappa * sphere.vmf_mean_cosine(kappa, dim)

    def log_prob(self, z: Tensor, given: Tensor, *, validate: bool = True) -> Tensor:
        """Log q(z_i | given_i) of each row, in nats; shapes (k, d), (k, d) -> (k,)."""
        return density.log_prob(self, z, given, validate)

    def with_bandwidth(self, h: Parameter) -> "VonMisesFisher":
        """Concentration kappa / h: h is a temperature, as in the paper's experiments (h = 0.1)."""
        return VonMisesFisher(self.kappa / checks.positive("h", h))


@dataclass(frozen=True)
class Gaussian:
    r"""Isotropic Gaussian: :math:`\log q = -\|z_2 - z_1\|_2^2 / (2\sigma^2) - \frac d2 \log(2\pi\sigma^2)`.

    Args:
        sigma: standard deviation of every coordinate, positive.
    """

    sigma: Parameter
    on_sphere: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a sigma that is not positive."""
        object.__setattr__(self, "sigma", checks.positive("sigma", self.sigma))

    @property
    def similarity(self) -> Similarity:
        """Minus the squared Euclidean distance."""
        return "sqeuclidean"

    @property
    def factor(self) -> Parameter:
        """1/2."""
        return 0.5

    @property
    def unit(self) -> Parameter:
        """Sigma."""
        return _wide(self.sigma)

    @property
    def arguments(self) -> dict[str, Parameter]:
        """Sigma."""
        return {"sigma": self.sigma}

    def log_normalizer(self, dim: int) -> Parameter:
        r""":math:`-\frac d2 \log 2\pi - d \log \sigma`."""
        return -checks.whole("dim", dim, 1) * (0.5 * math.log(2 * math.pi) + _log(self.sigma))

    def entropy(self, dim: int) -> Parameter:
        r"""Differential entropy :math:`\frac d2 \log(2\pi e \sigma^2)`, in nats."""
        return -self.log_normalizer(dim) + dim / 2

    def log_prob(self, z: Tensor, given: Tensor, *, validate: bool = True) -> Tensor:
        """Log q(z_i | given_i) of each row, in nats; shapes (k, d), (k, d) -> (k,)."""
        return density.log_prob(self, z, given, validate)

    def with_bandwidth(self, h: Parameter) -> "Gaussian":
        """Standard deviation sigma h."""
        return Gaussian(self.sigma * checks.positive("h", h))


@dataclass(frozen=True)
class Laplace:
    r"""Independent Laplace coordinates: :math:`\log q = -\|z_2 - z_1\|_1 / b - d \log 2b`.

    Args:
        scale: b, positive.
    """

    scale: Parameter
    on_sphere: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a scale that is not positive."""
        object.__setattr__(self, "scale", checks.positive("scale", self.scale))

    @property
    def similarity(self) -> Similarity:
        """Minus the L1 distance."""
        return "l1"

    @property
    def factor(self) -> Parameter:
        """1."""
        return 1.0

    @property
    def unit(self) -> Parameter:
        """The scale b."""
        return _wide(self.scale)

    @property
    def arguments(self) -> dict[str, Parameter]:
        """The scale."""
        return {"scale": self.scale}

    def log_normalizer(self, dim: int) -> Parameter:
        r""":math:`-d \log 2b`."""
        return -checks.whole("dim", dim, 1) * (math.log(2) + _log(self.scale))

    def entropy(self, dim: int) -> Parameter:
        r"""Differential entropy :math:`d (1 + \log 2b)`, in nats."""
        return -self.log_normalizer(dim) + dim

    def log_prob(self, z: Tensor, given: Tensor, *, validate: bool = True) -> Tensor:
        """Log q(z_i | given_i) of each row, in nats; shapes (k, d), (k, d) -> (k,)."""
        return density.log_prob(self, z, given, validate)

    def with_bandwidth(self, h: Parameter) -> "Laplace":
        """Scale b h."""
        return Laplace(self.scale * checks.positive("h", h))


@dataclass(frozen=True)
class GeneralizedNormal:
    r"""Independent generalised normal coordinates: :math:`\log q = -\sum |z_2 - z_1|^\beta / \alpha^\beta + \log C`.

    Laplace at beta = 1; at beta = 2 a Gaussian with sigma = alpha / sqrt(2); towards a uniform cube as beta grows.

    Args:
        beta: the exponent, positive.
        scale: alpha, positive.
    """

    beta: Parameter
    scale: Parameter
    on_sphere: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse parameters that are not positive."""
        object.__setattr__(self, "beta", checks.positive("beta", self.beta))
        object.__setattr__(self, "scale", checks.positive("scale", self.scale))

    @property
    def similarity(self) -> Similarity:
        """Minus the summed powers of the differences."""
        return ("lp", _wide(self.beta))

    @property
    def factor(self) -> Parameter:
        """1."""
        return 1.0

    @property
    def unit(self) -> Parameter:
        """The scale alpha."""
        return _wide(self.scale)

    @property
    def arguments(self) -> dict[str, Parameter]:
        """Beta and the scale."""
        return {"beta": self.beta, "scale": self.scale}

    def log_normalizer(self, dim: int) -> Parameter:
        r""":math:`d \log \beta - d \log 2\alpha - d \log \Gamma(1/\beta)`."""
        inverse = 1 / _wide(self.beta)
        log_gamma = torch.lgamma(inverse) if isinstance(inverse, Tensor) else math.lgamma(inverse)
        return checks.whole("dim", dim, 1) * (_log(self.beta) - math.log(2) - _log(self.scale) - log_gamma)

    def entropy(self, dim: int) -> Parameter:
        r"""Differential entropy :math:`d / \beta - \log C`, in nats."""
        return -self.log_normalizer(dim) + dim / _wide(self.beta)

    def log_prob(self, z: Tensor, given: Tensor, *, validate: bool = True) -> Tensor:
        """Log q(z_i | given_i) of each row, in nats; shapes (k, d), (k, d) -> (k,)."""
        return density.log_prob(self, z, given, validate)

    def with_bandwidth(self, h: Parameter) -> "GeneralizedNormal":
        """Scale alpha h."""
        return GeneralizedNormal(self.beta, self.scale * checks.positive("h", h))


def _log(x: Parameter) -> Parameter:
    x = _wide(x)
    return torch.log(x) if isinstance(x, Tensor) else math.log(x)


def _wide(x: Parameter) -> Parameter:
    """A parameter to compute with: float32 at the least, and a single one without dimensions, so that scalars stay scalar."""
    if not isinstance(x, Tensor):
        return x
    return checks.at_least_float32(x.reshape(()) if x.numel() == 1 else x)
