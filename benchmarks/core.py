"""The numbers behind the estimators: accuracy, speed and known truths, printed as one table.

    .venv/bin/python benchmarks/core.py            a few seconds on two cores; needs the test extras (make setup)

Where the tests assert, this shows by how much.
"""

import math
import platform
import time
from collections.abc import Callable
from functools import partial

import mpmath
import torch
from rich.console import Console
from rich.table import Table
from scipy.special import iv
from scipy.stats import vonmises_fisher
from torch import Tensor

import entrec
from entrec import Gaussian, VonMisesFisher, er_bound, kde_entropy, log_sphere_area, reconstruction
from entrec.estimators.sphere import vmf_log_normalizer, vmf_mean_cosine

DIMS = (2, 3, 5, 10, 18, 19, 32, 64, 128, 256, 512, 1000, 2048, 16384, 65536)
KAPPAS = (1e-3, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
mpmath.mp.dps = 50

Row = tuple[str, str, str]


def main() -> None:
    """Measure everything and print it."""
    torch.manual_seed(0)
    table = Table("what", "measured", "truth or target")
    for part in (constant, published_check, uniform_sphere, known_densities, plugin_limits, information, identities):
        for row in part():
            table.add_row(*row)
    Console().print(table)
    print(f"entrec {entrec.__version__}, torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}")


def constant() -> list[Row]:
    """The von Mises-Fisher constant against 50-digit arithmetic, and its time."""
    value_error = ratio_error = 0.0
    for dim in DIMS:
        for kappa in KAPPAS:
            nu, x = mpmath.mpf(dim) / 2 - 1, mpmath.mpf(kappa)
            bessel = mpmath.besseli(nu, x)
            log_c = nu * mpmath.log(x) - mpmath.mpf(dim) / 2 * mpmath.log(2 * mpmath.pi) - mpmath.log(bessel)
            ratio = mpmath.besseli(nu + 1, x) / bessel
            value_error = max(value_error, float(abs(vmf_log_normalizer(kappa, dim) - log_c) / max(1, abs(log_c))))
            ratio_error = max(ratio_error, float(abs(vmf_mean_cosine(kappa, dim) - ratio) / ratio))
    slowest, slowest_tensor = (
        max(_microseconds(partial(vmf_log_normalizer, kappa, dim)) for dim in DIMS)
        for kappa in (10.0, torch.tensor(10.0, dtype=torch.float64))
    )
    return [
        ("log C: largest error / max(1, |log C|)", f"{value_error:.1e}", "<= 1e-9"),
        ("its gradient, the Bessel ratio: largest relative error", f"{ratio_error:.1e}", ""),
        ("log C: slowest call, float and float64 tensor", f"{slowest:.0f} us, {slowest_tensor:.0f} us", "< 1000 us"),
    ]


def published_check() -> list[Row]:
    """1000 points uniform on S^999 at kappa = 10, with our constant and with the published code's guard of 1e-7."""
    z = torch.randn(1000, 1000)
    density = VonMisesFisher(10.0)
    ours = float(kde_entropy(z, density, leave_one_out=True))
    with_self = float(kde_entropy(z, density))
    guarded = 499 * math.log(10) - 500 * math.log(2 * math.pi) - math.log(iv(499, 10.0) + 1e-7)
    as_published = with_self + float(density.log_normalizer(1000)) - guarded
    return [
        ("uniform on S^999: the published constant", f"{as_published:.1f}", "-249.3 in its README"),
        ("uniform on S^999: ours, with the self term", f"{with_self:.1f}", f"{log_sphere_area(1000):.2f}"),
        ("uniform on S^999: ours, Joe, leave-one-out", f"{ours:.2f}", f"{log_sphere_area(1000):.2f}"),
    ]


def uniform_sphere() -> list[Row]:
    """Joe, leave-one-out, on uniform points."""
    rows = []
    for dim in (3, 10, 128, 2048):
        value = float(kde_entropy(torch.randn(1000, dim), VonMisesFisher(10.0), leave_one_out=True))
        rows.append((f"uniform on S^{dim - 1}: Joe, leave-one-out, k = 1000", f"{value:.3f}", f"{log_sphere_area(dim):.3f}"))
    return rows


def known_densities() -> list[Row]:
    """Joe, leave-one-out, with the bandwidth shrinking as k^(-1/(d+4)), on Gaussian and von Mises-Fisher samples."""
    rows = []
    for dim in (1, 2, 5):
        values = [_joe(torch.randn(k, dim), Gaussian(k ** (-1 / (dim + 4)))) for k in (256, 1024, 4096)]
        rows.append((f"Gaussian in R^{dim}: Joe at k = 256, 1024, 4096", _list(values), f"{Gaussian(1.0).entropy(dim):.3f}"))
    for dim in (3, 10):
        sampler = vonmises_fisher(torch.eye(dim)[0].tolist(), 10.0)
        values = []
        for k in (256, 1024, 4096):
            z = torch.as_tensor(sampler.rvs(k, random_state=0), dtype=torch.float32)
            values.append(_joe(z, VonMisesFisher(10.0 * k ** (2 / (dim + 3)))))
        truth = float(VonMisesFisher(10.0).entropy(dim))
        rows.append((f"vMF(10) on S^{dim - 1}: Joe at k = 256, 1024, 4096", _list(values), f"{truth:.3f}"))
    return rows


def plugin_limits() -> list[Row]:
    """The normalised plug-in, on Gaussian samples."""
    rows = []
    for dim in (1, 2, 5):
        z, h = torch.randn(4096, dim), 4096 ** (-1 / (dim + 4))
        value = float(kde_entropy(z, Gaussian(h), "plugin", leave_one_out=True))
        limit = float(Gaussian(1.0).entropy(dim)) - dim / 4
        rows.append((f"Gaussian in R^{dim}: plug-in at k = 4096", f"{value:.3f}", f"{limit:.3f} (H - d/4)"))
    return rows


def information() -> list[Row]:
    """The bound on correlated Gaussian pairs: mean over 20 draws of 1000 pairs, with its standard error."""
    rows = []
    for dim, rho in ((2, 0.95), (10, 0.6)):
        truth, q = -dim / 2 * math.log(1 - rho**2), Gaussian(math.sqrt(1 - rho**2))
        estimates: dict[str, Callable[[Tensor, Tensor], float]] = {
            "exact entropy, true q": partial(_exact, q),
            "exact entropy, q twice as wide": partial(_exact, q.with_bandwidth(2.0)),
            "KDE, leave-one-out": partial(_kde, q, True),
            "KDE, with the self term": partial(_kde, q, False),
        }
        for label, estimate in estimates.items():
            values = torch.tensor([estimate(*_pairs(1000, dim, rho)) for _ in range(20)])
            error = float(values.std()) / math.sqrt(20)
            rows.append((f"I in R^{dim}, {label}", f"{float(values.mean()):.3f} ± {error:.3f}", f"{truth:.3f}"))
    return rows


def _exact(q: Gaussian, mean: Tensor, z2: Tensor) -> float:
    return float(Gaussian(1.0).entropy(z2.shape[1]) + reconstruction(z2, mean, q))


def _kde(q: Gaussian, leave_one_out: bool, mean: Tensor, z2: Tensor) -> float:
    return float(er_bound(mean, z2, q, leave_one_out=leave_one_out).value)


def identities() -> list[Row]:
    """The contrastive loss and uniformity, exactly."""
    z1, z2 = torch.randn(2, 200, 16, dtype=torch.float64)
    density = VonMisesFisher(10.0)
    scores = 10 * torch.nn.functional.cosine_similarity(z2[:, None], z2[None], dim=-1)
    positives = 10 * torch.nn.functional.cosine_similarity(z2, z1, dim=-1)
    negatives = scores.masked_fill(torch.eye(200, dtype=torch.bool), -math.inf).logsumexp(dim=-1)
    contrastive = (negatives - positives).mean() - math.log(199)
    ours = -er_bound(z1, z2, density, leave_one_out=True).value
    unit = torch.nn.functional.normalize(z1, dim=-1)
    joe = kde_entropy(unit, Gaussian(0.5), leave_one_out=True) + float(Gaussian(0.5).log_normalizer(16))
    gap = float(joe + entrec.uniformity(z1, t=2.0))
    return [
        ("contrastive loss - log(k-1) against minus the ER objective", f"{abs(float(ours - contrastive)):.1e} apart", "0"),
        ("Joe minus the uniformity relaxation", f"{gap:.4f}", ">= 0 (Jensen)"),
    ]


def _joe(z: Tensor, kernel: entrec.Density) -> float:
    return float(kde_entropy(z, kernel, leave_one_out=True))


def _pairs(k: int, dim: int, rho: float) -> tuple[Tensor, Tensor]:
    """The mean of Z2 given Z1, and Z2."""
    mean = rho * torch.randn(k, dim)
    return mean, mean + math.sqrt(1 - rho**2) * torch.randn(k, dim)


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def _microseconds(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
