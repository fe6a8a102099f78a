"""The two tables of the paper's Appendix C: their settings, and the scores that it reports, in percent."""

import math
from typing import Literal, NamedTuple

from entrec.identifiability.spaces import SpaceName

TableName = Literal["affine", "permutation", "content-style"]
Column = Literal["infonce", "er-h10", "er-h1"]
COLUMNS: tuple[Column, ...] = ("infonce", "er-h10", "er-h1")


class Row(NamedTuple):
    """A row: the generative process, the model, the published scores, and which of them carry a mark.

    A star is a score that the authors measured themselves, as they could not replicate the one of Zimmermann et al. (2021); a
    dagger is one of a training that they call unstable.
    """

    space: SpaceName
    marginal: str
    conditional: str
    output: SpaceName
    model: str
    scores: tuple[float, float, float]
    marks: tuple[str, str, str] = ("", "", "")


_UNSTABLE, _OWN = ("", "", "†"), ("*", "", "")

AFFINE: tuple[Row, ...] = (
    Row("sphere", "uniform", "vmf:1", "sphere", "vmf:1", (99.42, 89.31, 98.94)),
    Row("sphere", "uniform", "vmf:10", "sphere", "vmf:1", (99.86, 99.87, 99.80)),
    Row("sphere", "uniform", "laplace:0.05", "sphere", "vmf:1", (99.91, 99.88, 99.62)),
    Row("sphere", "uniform", "normal:0.05", "sphere", "vmf:1", (99.86, 99.82, 99.31)),
    Row("box", "uniform", "normal:0.05", "unbounded", "normal", (99.60, 99.53, 71.47), _UNSTABLE),
    Row("box", "uniform", "laplace:0.05", "unbounded", "normal", (99.64, 99.57, 17.30), _UNSTABLE),
    Row("box", "uniform", "laplace:0.05", "unbounded", "gennorm:3", (99.70, 99.76, 99.73)),
    Row("box", "uniform", "normal:0.05", "unbounded", "gennorm:3", (99.69, 99.72, 99.67)),
    Row("sphere", "normal:1", "laplace:0.05", "sphere", "vmf:1", (99.02, 99.09, 98.77)),
    Row("sphere", "normal:1", "normal:0.05", "sphere", "vmf:1", (99.02, 98.96, 98.43)),
    Row("unbounded", "laplace:1", "normal:1", "unbounded", "normal", (89.85, 88.86, 88.69), _OWN),
    Row("unbounded", "normal:1", "normal:1", "unbounded", "normal", (95.26, 89.89, 89.74), _OWN),
)

PERMUTATION: tuple[Row, ...] = (
    Row("box", "uniform", "laplace:0.05", "box", "laplace", (98.62, 98.49, 97.49)),
    Row("box", "uniform", "gennorm:3:0.05", "box", "gennorm:3", (99.90, 99.90, 95.51)),
    Row("box", "uniform", "normal:0.05", "box", "normal", (99.77, 99.74, 96.22)),
    Row("box", "uniform", "laplace:0.05", "box", "normal", (99.76, 99.76, 99.74)),
    Row("box", "uniform", "gennorm:3:0.05", "box", "laplace", (98.80, 98.77, 98.65)),
    Row("box", "uniform", "laplace:0.05", "unbounded", "laplace", (98.57, 98.57, 98.53)),
    Row("box", "uniform", "gennorm:3:0.05", "unbounded", "gennorm:3", (60.54, 61.23, 51.44), _OWN),
    Row("box", "uniform", "normal:0.05", "unbounded", "normal", (58.26, 56.52, 53.14)),
    Row("box", "uniform", "laplace:0.05", "unbounded", "normal", (59.67, 56.32, 31.10)),
    Row("box", "uniform", "normal:0.05", "unbounded", "gennorm:3", (54.59, 54.58, 39.01), _OWN),
)

ROWS: dict[TableName, tuple[Row, ...]] = {"affine": AFFINE, "permutation": PERMUTATION, "content-style": ()}
_POWERS = {"vmf": 1, "laplace": 1, "normal": 2}
NAMES: dict[Column, str] = {"infonce": "InfoNCE", "er-h10": "ER, h = 10", "er-h1": "ER, h = 1"}
SCORES: dict[TableName, str] = {"affine": "R2", "permutation": "MCC", "content-style": "R2"}


def bandwidth(column: Column, model: str) -> float:
    r"""Of the model's density in a column of ER, whose h is what log q is multiplied by: :math:`q_h \propto q^h`.

    So :math:`\exp(-|z|^p)` becomes :math:`\exp(-h |z|^p)`, a bandwidth of :math:`h^{-1/p}`, and a von Mises-Fisher
    concentration h times as large, as a temperature of 1 / h does it. By the paper's equation of the density estimate h would
    widen the density instead. This reading is chosen by its scores, and results/identifiability/notes.md says which.

    Example:
        >>> bandwidth("er-h10", "vmf:1"), round(bandwidth("er-h10", "normal"), 4), bandwidth("er-h1", "gennorm:3")
        (0.1, 0.3162, 1.0)
    """
    name, *numbers = model.split(":")
    power = float(numbers[0]) if name == "gennorm" else _POWERS[name]
    return math.pow(float(column.removeprefix("er-h")), -1 / power)
