"""Laws by a word, as the command line and the tables name them."""

import math

from entrec.estimators import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher
from entrec.identifiability.words import nearest

Law = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal  # densities that can be drawn from, around a centre

_FORMS = "uniform, vmf:KAPPA, normal:SIGMA, laplace:SCALE or gennorm:BETA:SCALE"
LEAST, MOST = 1e-6, 1e6  # of its numbers: beyond them float32 holds no more than the law's middle, or its ends
_SHAPES = 0.25, 100.0  # of a generalised normal's beta: below, all but a point is tail; above, it is uniform
_COUNTS = {"uniform": (0, 0), "vmf": (1, 1), "normal": (0, 1), "laplace": (0, 1), "gennorm": (1, 2)}


def law(word: str) -> Law | None:
    """A marginal or conditional law; None is the uniform one.

    Without a scale, the density is proportional to exp(-sum |z2 - z1|^p), as the tables' models are: `normal` has sigma
    1/sqrt(2), `laplace` and `gennorm:3` have scale 1.

    Example:
        >>> law("normal:0.05"), law("gennorm:3")
        (Gaussian(sigma=0.05), GeneralizedNormal(beta=3.0, scale=1.0))
    """
    name, *texts = word.strip().lower().split(":")
    if name not in _COUNTS:
        raise ValueError(f"a law must be {_FORMS}, got {word!r}{nearest(name, _COUNTS)}")
    least, most = _COUNTS[name]
    if not least <= len(texts) <= most:
        raise ValueError(f"a law must be {_FORMS}, got {word!r}")
    numbers = [_number(text, word) for text in texts]
    if name == "uniform":
        return None
    if name == "vmf":
        return VonMisesFisher(numbers[0])
    if name == "normal":
        return Gaussian(numbers[0] if numbers else math.sqrt(0.5))
    if name == "laplace":
        return Laplace(numbers[0] if numbers else 1.0)
    if not _SHAPES[0] <= numbers[0] <= _SHAPES[1]:
        raise ValueError(f"BETA must be within {_SHAPES[0]:g} and {_SHAPES[1]:g}, got {word!r}")
    return GeneralizedNormal(numbers[0], numbers[1] if len(numbers) > 1 else 1.0)


def model(word: str) -> Law:
    """A model's density q(z2 | z1)."""
    found = law(word)
    if found is None:
        raise ValueError("a model must be vmf:KAPPA, normal, laplace or gennorm:BETA, got 'uniform', which tells nothing of z2")
    return found


def _number(text: str, word: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"{text!r} in {word!r} is no number; a law must be {_FORMS}") from None
    if not LEAST <= found <= MOST:
        raise ValueError(f"the numbers of a law must be within {LEAST:g} and {MOST:g}, got {word!r}")
    return found
