"""How well latents were found: up to an affine map, up to order and scale, or up to any smooth map."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def r2(latents: Tensor, found: Tensor) -> float:
    """R2 of a linear regression of the latents on what was found, the mean over latents; 1 up to affine maps.

    Args:
        latents: (k, n).
        found: (k, m), on the same rows.
    """
    from sklearn.linear_model import LinearRegression
    from sklearn.metrics import r2_score

    z, x = _arrays(latents, found)
    return float(r2_score(z, LinearRegression().fit(x, z).predict(x)))


def mcc(latents: Tensor, found: Tensor) -> float:
    """Mean correlation of each latent with its own coordinate, over the best way to assign them; 1 up to order and scale.

    Args:
        latents: (k, n).
        found: (k, n), on the same rows; a coordinate that never changes correlates with nothing.
    """
    from scipy.optimize import linear_sum_assignment

    z, x = _arrays(latents, found)
    if z.shape != x.shape:
        raise ValueError(
            f"each latent must have a coordinate of its own, got {z.shape[1]} latents and {x.shape[1]} coordinates"
        )
    correlations = np.abs(_standard(z).T @ _standard(x)) / len(z)
    return float(correlations[linear_sum_assignment(correlations, maximize=True)].mean())


def nonlinear_r2(latents: Tensor, found: Tensor) -> float:
    """R2 of a kernel ridge regression on other rows than those it was fitted on; 1 up to smooth invertible maps.

    As in von Kuegelgen et al. (2021): a radial basis function's kernel, on standardised coordinates, whose ridge and width are
    chosen among the same by cross-validation on the first half of the rows; the second half is scored.

    Args:
        latents: (k, n).
        found: (k, m), on the same rows.
    """
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.metrics import r2_score
    from sklearn.model_selection import GridSearchCV

    z, x = (_standard(part) for part in _arrays(latents, found))
    half = len(z) // 2
    choices = {"alpha": [1.0, 1e-1, 1e-2, 1e-3], "gamma": np.logspace(-2, 2, 4)}
    search = GridSearchCV(KernelRidge(kernel="rbf"), choices, cv=3).fit(x[:half], z[:half])
    return float(r2_score(z[half:], search.predict(x[half:])))


def _arrays(latents: Tensor, found: Tensor) -> tuple[Array, Array]:
    if latents.ndim != 2 or found.ndim != 2 or len(latents) != len(found):
        raise ValueError(f"latents and what was found must be rows of the same data, got {_shapes(latents, found)}")
    if len(latents) <= found.shape[1] + 1:
        raise ValueError(f"a regression on {found.shape[1]} coordinates needs more rows than that, got {len(latents)}")
    return latents.detach().double().cpu().numpy(), found.detach().double().cpu().numpy()


def _shapes(*tensors: Tensor) -> str:
    return " and ".join(str(tuple(x.shape)) for x in tensors)


def _standard(x: Array) -> Array:
    deviation = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))
