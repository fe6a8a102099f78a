"""The losses that `entrec bench loss` compares: ours, the same formula written densely, and lightly's NT-Xent."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from entrec import VonMisesFisher, kde_entropy
from entrec.losses import ERLoss, NTXentLoss
from entrec.pairwise import Precision

What = Literal["entropy", "er", "ntxent"]

OURS, DENSE, LIGHTLY = "ours", "dense PyTorch", "lightly NT-Xent"


@dataclass(frozen=True)
class Contestant:
    """One way to compute a loss of two views.

    Args:
        name: as the table shows it.
        loss: takes the views as one tensor (2, k, d) where `stacked`, else as two of (k, d); returns a scalar.
        blocks: the pairs in its formula, in units of k^2: 2 within either view, 4 among the 2k rows of both.
        held: the k x k matrices that it holds at its peak, measured; 0 where memory grows with k and not with k^2.
        stacked: see `loss`.
        as_ours: it computes the formula of ours, so that their gradients can be compared.
    """

    name: str
    loss: Callable[..., Tensor]
    blocks: int
    held: int = 0
    stacked: bool = False
    as_ours: bool = True

    def leaves(self, views: Tensor) -> list[Tensor]:
        """Copies of the views (2, k, d), as the loss takes them, that collect gradients."""
        parts = [views] if self.stacked else list(views)
        return [part.detach().clone().requires_grad_() for part in parts]

    def operations(self, k: int, d: int) -> int:
        r"""Floating-point operations of the matrix products that the formula needs where its symmetry is used.

        All pairs among n rows: the similarities are :math:`2 n^2 d`, half of that by symmetry; the backward pass makes them
        again from the inputs (:math:`n^2 d`) and multiplies their weights, a symmetric matrix, by the rows
        (:math:`2 n^2 d`). So :math:`4 n^2 d`: twice that with n = k for the entropy of two views, once with n = 2k for
        NT-Xent. Every contestant is held against this count, whatever it does itself (dense needs 1.5 times as many).
        """
        return 4 * self.blocks * k**2 * d

    def needed_bytes(self, k: int, dtype: torch.dtype) -> int:
        """An estimate of the peak, from the matrices alone."""
        return self.held * k**2 * dtype.itemsize


class Compared(NamedTuple):
    """The contestants of one comparison, and why one is missing, or nothing."""

    contestants: list[Contestant]
    missing: str


def compared(what: What, kappa: float, d: int, precision: Precision) -> Compared:
    """Ours, dense and, where it is installed, lightly's, for projections in d dimensions."""
    density = VonMisesFisher(kappa)
    if what == "entropy":
        ours = Contestant(OURS, partial(_entropy, density=density, precision=precision), blocks=2, stacked=True)
        log_c = float(density.log_normalizer(d))
        dense = Contestant(DENSE, partial(dense_entropy, kappa=kappa, log_c=log_c), blocks=2, held=5)
    elif what == "er":
        ours = Contestant(OURS, ERLoss(density, estimator="plugin", precision=precision, validate=False), blocks=2)
        dense = Contestant(DENSE, partial(dense_er, kappa=kappa), blocks=2, held=5)
    else:
        ours = Contestant(OURS, NTXentLoss(1 / kappa, precision=precision, validate=False), blocks=4)
        dense = Contestant(DENSE, partial(dense_ntxent, kappa=kappa), blocks=4, held=16)
    if find_spec("lightly") is None:
        return Compared([ours, dense], "lightly is not installed: pip install 'entrec[bench]'")
    try:
        loss = import_module("lightly.loss").NTXentLoss(temperature=1 / kappa)
    except (ImportError, RuntimeError, AttributeError) as error:  # a torchvision that does not match torch, for instance
        return Compared([ours, dense], f"lightly cannot be imported: {type(error).__name__}: {error}")
    return Compared([ours, dense, Contestant(LIGHTLY, loss, blocks=4, held=20, as_ours=what == "ntxent")], "")


def dense_entropy(z1: Tensor, z2: Tensor, kappa: float, log_c: float) -> Tensor:
    """Joe's entropy with a von Mises-Fisher kernel, the mean of two views, one after the other."""
    entropies = [-_dense_log_density(z, kappa).mean() - log_c for z in (z1, z2)]
    return torch.stack(entropies).mean()


def dense_er(z1: Tensor, z2: Tensor, kappa: float) -> Tensor:
    """Minus entropy (normalised plug-in) minus reconstruction, in which the density's constant cancels."""
    entropies = []
    for z in (z1, z2):
        log_p = _dense_log_density(z, kappa)
        entropies.append(-(torch.softmax(log_p, dim=-1) * log_p).sum())
    reconstruction = kappa * (normalize(z1, dim=-1) * normalize(z2, dim=-1)).sum(dim=-1).mean()
    return -torch.stack(entropies).mean() - reconstruction


def dense_ntxent(z1: Tensor, z2: Tensor, kappa: float) -> Tensor:
    """SimCLR's loss at the temperature 1 / kappa."""
    u = normalize(torch.cat([z1, z2]), dim=-1)
    similarities = (kappa * u @ u.mT).fill_diagonal_(-math.inf)
    u1, u2 = u.chunk(2)
    return torch.logsumexp(similarities, dim=-1).mean() - kappa * (u1 * u2).sum(dim=-1).mean()


def _dense_log_density(z: Tensor, kappa: float) -> Tensor:
    u = normalize(z, dim=-1)
    return torch.logsumexp(kappa * u @ u.mT, dim=-1) - math.log(len(z))


def _entropy(z: Tensor, density: VonMisesFisher, precision: Precision) -> Tensor:
    return kde_entropy(z, density, "joe", precision=precision, validate=False).mean()
