"""Time, peak memory and gradient error of a loss, forward + backward, against dense PyTorch and lightly's NT-Xent.

    entrec bench loss                                               the entropy of two views, at sizes that suit the device
    entrec bench loss --what ntxent -k 4096 -d 64 -d 256 --out FILE.json

Every contestant takes the same steps on the same random views. `entrec.bench.contestants` says what they compute, and which
operations the fraction of the device's matrix-product rate counts.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from entrec.bench.contestants import DENSE, Contestant, compared
from entrec.bench.memory import Case, ResidentMemory, cuda_peak, free_bytes, out_of_memory
from entrec.bench.results import Benchmark, Row, machine
from entrec.bench.settings import Settings
from entrec.bench.timing import ProductRate, float32_products, forward_backward, milliseconds, product_rate
from entrec.bench.views import unit_views

REFERENCE_UP_TO = {"cpu": 4096, "cuda": 16384}  # rows; the float64 gradient is dense, and up to here a matter of seconds
_FITS = 0.9  # of the free memory: the matrices are not all that a step holds


def run(chosen: Settings, progress: Callable[[str], None] = lambda part: None) -> Benchmark:
    """Measure every contestant at every size; `progress` hears what comes next."""
    device, dtype = torch.device(chosen.device), getattr(torch, chosen.dtype)
    on_cuda, where = device.type == "cuda", machine(device)
    rows, missing = [], ""
    with (
        torch.cuda.device(device) if on_cuda else nullcontext(),
        nullcontext() if on_cuda else ResidentMemory() as resident,
        float32_products(tf32=on_cuda and chosen.precision == "fast"),
    ):
        progress("the device's matrix products")
        rate = product_rate(device, dtype, chosen.precision)
        for d in chosen.d:
            contestants, missing = compared(chosen.what, chosen.kappa, d, chosen.precision)
            dense = next(c for c in contestants if c.name == DENSE)
            for k in chosen.k:
                progress(f"k = {k}, d = {d}: the gradient in float64")
                views = unit_views(k, d, dtype, device)
                reference = float64_gradient(dense, views)
                for contestant in contestants:
                    progress(f"k = {k}, d = {d}: {contestant.name}")
                    rows.append(_row(contestant, views, reference, chosen, rate, resident))
    return Benchmark(chosen, where, rate, rows, missing)


def float64_gradient(dense: Contestant, views: Tensor) -> Tensor | None:
    """The gradient of the dense formula in float64 at views (2, k, d), of that shape, where it is affordable."""
    k = views.shape[1]
    if k > REFERENCE_UP_TO[views.device.type] or dense.needed_bytes(k, torch.float64) > _FITS * free_bytes(views.device):
        return None
    leaves = dense.leaves(views.double())
    forward_backward(dense.loss, leaves)
    return _gradient(leaves, views)


def gradient_error(gradient: Tensor, reference: Tensor) -> float:
    """Norm of the difference over the norm of the reference, in float64."""
    return float(torch.linalg.vector_norm(gradient.double() - reference) / torch.linalg.vector_norm(reference))


def _row(
    contestant: Contestant,
    views: Tensor,
    reference: Tensor | None,
    chosen: Settings,
    rate: ProductRate,
    resident: ResidentMemory | None,
) -> Row:
    """What was measured, or why it was not."""
    _, k, d = views.shape
    needs = contestant.needed_bytes(k, views.dtype)
    limit = _FITS * free_bytes(views.device) if chosen.dense_limit_gb is None else 1e9 * chosen.dense_limit_gb
    if needs > limit:
        return Row(k, d, contestant.name, note=f"needs about {needs / 1e9:.{0 if needs > 1e10 else 2}f} GB")
    try:
        return _measured(contestant, views, reference, chosen, rate, resident)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return Row(k, d, contestant.name, note="out of memory")


def _measured(
    contestant: Contestant,
    views: Tensor,
    reference: Tensor | None,
    chosen: Settings,
    rate: ProductRate,
    resident: ResidentMemory | None,
) -> Row:
    _, k, d = views.shape
    leaves = contestant.leaves(views)
    step = partial(forward_backward, contestant.loss, leaves)
    error = None
    if reference is not None and contestant.as_ours:
        step()
        error = gradient_error(_gradient(leaves, views), reference)
    took = milliseconds(step, views.device, chosen.repeats)
    for leaf in leaves:
        leaf.grad = None
    peak = cuda_peak(step, views.device) if resident is None else resident.growth(_case(contestant, k, d, chosen))
    return Row(
        k,
        d,
        contestant.name,
        ms=took.step,
        back_to_back_ms=took.back_to_back,
        peak_mb=None if peak is None else peak / 1e6,
        gradient_error=error,
        fraction=contestant.operations(k, d) / (took.step / 1e3) / (1e12 * rate.tflops),
    )


def _gradient(leaves: Sequence[Tensor], views: Tensor) -> Tensor:
    return torch.cat([leaf.grad.flatten() for leaf in leaves if leaf.grad is not None]).view(views.shape)


def _case(contestant: Contestant, k: int, d: int, chosen: Settings) -> Case:
    threads = torch.get_num_threads()
    return Case(chosen.what, contestant.name, k, d, chosen.kappa, chosen.precision, chosen.dtype, threads)
