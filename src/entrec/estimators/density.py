r"""What a density is to the estimators: a reconstruction density q(z2 | z1) and the kernel of a density estimate.

Every density has the form :math:`\log q(z_2 \mid z_1) = s(z_2, z_1) + \log C`, with s one of the pairwise similarities. Its
parameter is a number, or a tensor where it is to be learnt. A density looks at its arguments on its own space: on the
sphere only the direction of a vector counts, in R^d vectors stay as they are.
"""

from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from entrec import checks
from entrec.pairwise import AS_USUAL, How, Similarity, ranks
from entrec.pairwise.logsumexp import logsumexp
from entrec.pairwise.rows import cosines
from entrec.pairwise.similarity import similarity_of_difference

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
        return density.factor * cosines(z, given)
    return density.factor * similarity_of_difference((z - given) / density.unit, density.similarity)


def log_kernel_sum(density: Density, z: Tensor, given: Tensor, exclude_diagonal: bool, how: How = AS_USUAL) -> Tensor:
    """Log sum_j q(z_i | given_j) without its constant, unchecked; (..., k, d), (..., m, d) -> (..., k)."""
    if density.on_sphere:
        return logsumexp(z, given, "cosine", density.factor, exclude_diagonal, how)
    # Dividing rounds, so the common part of all points goes first: kernels see differences alone.
    origin = ranks.mean_point(given, how.shares).to(given.dtype)
    points = (z - origin) / density.unit
    carriers = points if given is z else (given - origin) / density.unit
    return logsumexp(points, carriers, density.similarity, density.factor, exclude_diagonal, how)


def check_values(values: checks.ValueChecks, density: Density, **points: Tensor) -> None:
    """The value checks that points, and the density's own parameters, must pass."""
    for name, z in points.items():
        if density.on_sphere:
            checks.on_a_sphere(name, z)
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


def log_prob(density: Density, z: Tensor, given: Tensor, validate: bool) -> Tensor:
    """Log q(z_i | given_i) of each row, checked, in nats; (k, d), (k, d) -> (k,)."""
    checks.batch("z", z)
    checks.batch("given", given)
    checks.alike("z", z, "given", given)
    values = checks.ValueChecks(validate)
    check_values(values, density, z=z, given=given)
    values.raise_or_flag()
    z, given = checks.same_dtype(z, given)
    return log_kernel(density, z, given) + density.log_normalizer(z.shape[-1])
