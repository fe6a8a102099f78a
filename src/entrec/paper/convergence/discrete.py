"""The discrete plug-in's bias and variance against k and d: one-hot samples, soft codes, averages over chunks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from entrec import discrete_entropy
from entrec.paper.convergence.measure import Curve, Measured, generator, measure

DIM = 20
CHUNKS = 4
CONCENTRATION = 10.0  # of the Dirichlet codes


@dataclass(frozen=True)
class DiscreteCurves:
    """Every prediction stands in its points; `variance` is k times the predicted variance of one-hot samples."""

    one_hot: Curve
    chunked: Curve
    soft: Curve
    dimension: Curve
    variance: float


def run(quick: bool, seed: int, device: str) -> DiscreteCurves:
    """One-hot draws of an uneven categorical, their average over chunks, Dirichlet codes, and growing d."""
    p = _uneven(DIM, device)
    sizes = (20, 60, 100, 400, 1600) if quick else (20, 60, 100, 200, 400, 800, 1600, 6400)
    repeats = {k: min(1200, 160_000 // k) if quick else min(5000, 2_000_000 // k) for k in sizes}
    one_hot, chunked, soft, dimension = (
        generator(seed, f"discrete {name}", device) for name in ("one-hot", "chunks", "soft", "d")
    )
    dims, k = (5, 20, 100, 400), 2000
    return DiscreteCurves(
        Curve(f"one-hot, d = {DIM}", "k", [_one_hot(p, k, 1, repeats[k], one_hot, k) for k in sizes]),
        Curve(f"one-hot, mean of {CHUNKS} chunks", "k", [_one_hot(p, k, CHUNKS, repeats[k], chunked, k) for k in sizes]),
        Curve(f"soft codes, d = {DIM}", "k", [_soft(p, k, repeats[k], soft) for k in sizes]),
        Curve(f"one-hot, k = {k}", "d", [_one_hot(_uneven(d, device), k, 1, 60 if quick else 400, dimension, d) for d in dims]),
        float((p * p.log().square()).sum() - (p * p.log()).sum().square()),
    )


def _uneven(d: int, device: str) -> Tensor:
    """Probabilities in proportion to 1 / sqrt(rank)."""
    p = torch.arange(1, d + 1, dtype=torch.float64, device=device) ** -0.5
    return p / p.sum()


def _one_hot(p: Tensor, k: int, chunks: int, repeats: int, stream: Generator, x: float) -> Measured:
    def codes() -> Tensor:
        w = torch.multinomial(p, k, replacement=True, generator=stream)
        return torch.nn.functional.one_hot(w, len(p)).to(p)

    return measure(partial(_draw, p, codes, chunks), x, repeats, predicted=-chunks * (len(p) - 1) / (2 * k))


def _soft(p: Tensor, k: int, repeats: int, stream: Generator) -> Measured:
    """Codes from a Dirichlet with mean p, whose variances are p_w (1 - p_w) / (concentration + 1)."""

    def codes() -> Tensor:
        gammas = torch._standard_gamma((CONCENTRATION * p).expand(k, -1), generator=stream)
        return gammas / gammas.sum(dim=-1, keepdim=True)

    variance = p * (1 - p) / (CONCENTRATION + 1)
    return measure(partial(_draw, p, codes, 1), k, repeats, predicted=-float((variance / (2 * k * p)).sum()))


def _draw(p: Tensor, codes: Callable[[], Tensor], chunks: int) -> tuple[float, float]:
    """An estimate and its error from the codes' mean surprise, which has the entropy for its expectation."""
    probs = codes()
    value = float(discrete_entropy(probs, chunks))
    return value, value + float((probs @ p.log()).mean())
