r"""The densities q(z2 | z1), each also the kernel of a density estimate (ER paper, Section 4.1).

Every density has the form :math:`\log q(z_2 \mid z_1) = s(z_2, z_1) + \log C`, with s one of the pairwise similarities. Its
parameter is a number, or a tensor where it is to be learnt. A density looks at its arguments on its own space: on the
sphere only the direction of a vector counts, in R^d vectors stay as they are.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from entrec import checks
from entrec.estimators import sphere
from entrec.pairwise import Similarity, dense
from entrec.pairwise.dense import similarity_of_difference

Parameter = float | Tensor


@runtime_checkable
class Density(Protocol):
    """What the estimators ask of a density; a class of your own with these members works everywhere too."""

    on_sphere: ClassVar[bool]

    @property
    def similarity(self) -> Similarity:
        """Which of the pairwise similarities s is: the dot product on the sphere, one of the others in R^d."""

    @property
    def factor(self) -> Parameter:
        """What that similarity is multiplied by."""

    @property
    def unit(self) -> Parameter:
        """The length that differences in R^d are measured in before the similarity sees them; 1 on the sphere."""

    @property
    def arguments(self) -> dict[str, Parameter]:
        """The parameters by name; those that are tensors are checked to be positive at every use, as training moves them."""

    def log_normalizer(self, dim: int) -> Parameter:
        """The constant log C in `dim` dimensions, in nats."""


def log_kernel(density: Density, z: Tensor, given: Tensor) -> Tensor:
    """Log q(z_i | given_i) without its constant, for matching rows, unchecked; (..., d), (..., d) -> (...)."""
    if density.on_sphere:
        return density.factor * (sphere.to_sphere(z) * sphere.to_sphere(given)).sum(dim=-1)
    return density.factor * similarity_of_difference((z - given) / density.unit, density.similarity)


def log_kernel_sum(density: Density, z: Tensor, given: Tensor, exclude_diagonal: bool) -> Tensor:
    """Log sum_j q(z_i | given_j) without its constant, unchecked; (..., k, d), (..., m, d) -> (..., k)."""
    if density.on_sphere:
        points = sphere.to_sphere(z)
        carriers = points if given is z else sphere.to_sphere(given)
    else:
        # Dividing rounds, so the common part of all points goes first: kernels see differences alone.
        origin = given.detach().double().mean(dim=-2, keepdim=True).to(given.dtype)
        points = (z - origin) / density.unit
        carriers = points if given is z else (given - origin) / density.unit
    return dense.logsumexp(points, carriers, density.similarity, density.factor, exclude_diagonal)


def check_values(values: checks.ValueChecks, density: Density, **points: Tensor) -> None:
    """The value checks that points, and the density's own parameters, must pass."""
    for name, z in points.items():
        if density.on_sphere:
            if z.shape[-1] < 2:
                raise ValueError(f"{name} must have at least 2 columns to lie on a sphere, got shape {tuple(z.shape)}")
            values.directions(name, z)
        else:
            values.finite(name, z)
    for name, parameter in density.arguments.items():
        if isinstance(parameter, Tensor):
            checks.single(name, parameter)
            values.positive(name, parameter)


_MEMBERS = ("on_sphere", "similarity", "factor", "unit", "arguments", "log_normalizer")


def check_density(name: str, density: Any) -> None:
    """`density` is one: an object with the members of `Density`."""
    # Not isinstance(density, Density): torch.compile takes that for False where the density is made inside the graph.
    if isinstance(density, type) or not all(hasattr(density, member) for member in _MEMBERS):
        raise TypeError(f"{name} must be a density such as VonMisesFisher(kappa=10.0) or Gaussian(sigma=1.0), got {density!r}")
    if density.on_sphere != (density.similarity == "dot"):
        raise ValueError(f"{name} must have the similarity 'dot' on the sphere and another in R^d, got {density!r}")


def _log_prob(density: Density, z: Tensor, given: Tensor, validate: bool) -> Tensor:
    checks.batch("z", z)
    checks.batch("given", given)
    checks.alike("z", z, "given", given)
    values = checks.ValueChecks(validate)
    check_values(values, density, z=z, given=given)
    values.raise_or_flag()
    z, given = checks.same_dtype(z, given)
    return log_kernel(density, z, given) + density.log_normalizer(z.shape[-1])


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
        return _log_prob(self, z, given, validate)

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
        return _log_prob(self, z, given, validate)

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
        return _log_prob(self, z, given, validate)

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
        return _log_prob(self, z, given, validate)

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
