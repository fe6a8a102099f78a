"""Several processes, one batch: rows gathered across ranks, with the exact gradient.

Every rank holds some rows of the batch and gets the value of the whole. A gradient is the adjoint of what the ranks do
together: the derivative of the *sum* of the values that they return. As each returns the same value, that is W times the
gradient of one process on the concatenated batch, of which each rank receives its own rows' part, and the mean over ranks that
DistributedDataParallel takes of the parameters' gradients is exactly that one process's. No rank holds more than its own rows
of the matrix of pairs, and of that only a tile.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from entrec.pairwise import backends, operator
from entrec.pairwise.backends import Spec
from entrec.pairwise.tiled import Weighing

# What the ranks tell each other of their points; all but the rows must agree.
_TOLD = (
    "any number of rows",
    "as many columns",
    "as many views",
    "points of one dtype (of as many bytes)",
    "points that all need a gradient, or none that does (1 or 0),",
)


class Shares(NamedTuple):
    """How many rows of the batch each rank holds, and which rank this is."""

    sizes: tuple[int, ...]
    rank: int

    @property
    def total(self) -> int:
        """Rows of the whole batch."""
        return sum(self.sizes)

    @property
    def start(self) -> int:
        """Rows that come before this rank's."""
        return sum(self.sizes[: self.rank])

    @property
    def own(self) -> slice:
        """This rank's rows in the whole batch."""
        return slice(self.start, self.start + self.sizes[self.rank])


def agree(check: Callable[[], tuple[Tensor, ...]], like: Any, least_rows: int = 1) -> tuple[tuple[Tensor, ...], Shares | None]:
    """Check one's input, and tell each other how many rows one has; no shares for a single process.

    A rank that refused its input alone would leave the others waiting for it in the next exchange, so that is told too, and
    all of them raise.

    Args:
        check: looks at the input, and returns what it has made of it, first the points (..., k, d).
        like: what was given as points, as the check has not seen it yet.
        least_rows: that the ranks must have together.
    """
    if not several():
        found = check()
        _enough([found[0].shape[-2]], least_rows)
        return found, None
    fault: ValueError | TypeError | None = None
    found, mine = (), [0] * len(_TOLD)
    try:
        found = check()
        points = found[0]
        learnt = torch.is_grad_enabled() and any(x.requires_grad for x in found)
        mine = [points.shape[-2], points.shape[-1], points[..., 0, 0].numel(), points.dtype.itemsize, int(learnt)]
    except (ValueError, TypeError) as error:
        fault = error
    told = torch.tensor([fault is not None, *mine], device=_device(like))
    everyones = told.new_empty(dist.get_world_size(), len(told))
    dist.all_gather(list(everyones.unbind()), told)
    faulty, sizes, *others = everyones.T.tolist()
    if fault is not None:
        raise fault
    if any(faulty):
        ranks = [rank for rank, refused in enumerate(faulty) if refused]
        raise ValueError(
            f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} refused the input; the reason is told there"
        )
    for what, values in zip(_TOLD[1:], others, strict=True):
        if len(set(values)) > 1:
            raise ValueError(f"all ranks must give {what} to gather them, got {values} on ranks 0 to {len(values) - 1}")
    _enough(sizes, least_rows)
    return found, Shares(tuple(sizes), dist.get_rank())


def _enough(sizes: list[int], least_rows: int) -> None:
    if sum(sizes) < least_rows:
        of = f"{sizes} on ranks 0 to {len(sizes) - 1}" if len(sizes) > 1 else f"{sizes[0]} of a single process"
        raise ValueError(f"the ranks together must have at least {least_rows} rows, got {of}")


def _device(like: Any) -> torch.device:
    """Where to talk: where the points are, or where the ranks can talk if there are none."""
    if isinstance(like, Tensor):
        return like.device
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def several() -> bool:
    """Whether this process is one of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def as_on_the_first(*tensors: Tensor) -> None:
    """Overwrite the tensors, in place, with those of rank 0."""
    if several():
        for x in tensors:
            dist.broadcast(x, src=0)


def largest(x: Tensor) -> Tensor:
    """Of the ranks' numbers, one per place, the largest."""
    if not several():
        return x
    found = x.clone()
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found


def own_part(rows: Tensor) -> Tensor:
    """Of rows that all ranks hold alike, those that this one counts, so that each is counted once."""
    return rows[dist.get_rank() :: dist.get_world_size()] if several() else rows


def gather(x: Tensor, shares: Shares | None, dim: int = -1) -> Tensor:
    """All ranks' rows, which lie along `dim`, in the order of the ranks; `x` itself for a single process."""
    if shares is None:
        return x
    result: Tensor = _Gather.apply(x, shares, dim)
    return result


def mean_point(x: Tensor, shares: Shares | None) -> Tensor:
    """The mean of the whole batch's rows, (..., k, d) -> (..., 1, d), without gradient: the same on every rank."""
    x = x.detach().double()
    if shares is None:
        return x.mean(dim=-2, keepdim=True)
    total = x.sum(dim=-2, keepdim=True)
    dist.all_reduce(total)
    return total / shares.total


def logsumexp(a: Tensor, b: Tensor | None, p: Tensor | None, spec: Spec, shares: Shares) -> Tensor:
    """The log-sums of all ranks' rows over all ranks' columns, on every rank; b is None where both sets are one."""
    result: Tensor = _GatheredLogSumExp.apply(a, b, p, spec, shares)
    return result


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, shares: Shares, dim: int) -> Tensor:
        return _gathered(x, shares, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.shares, ctx.dim = inputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        own = ctx.shares.own
        return _summed(gradient).narrow(ctx.dim, own.start, own.stop - own.start), None, None


class _GatheredLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None, p: Tensor | None, spec: Spec, shares: Shares) -> Tensor:
        all_a = _gathered(a, shares, dim=-2)
        all_b = all_a if b is None else _gathered(b, shares, dim=-2)
        sums = backends.log_sums(a, all_b, p, spec, same=b is None, offset=shares.start)
        all_sums = _gathered(sums, shares, dim=-1)
        ctx.save_for_backward(a, b, p, all_a, None if b is None else all_b, all_sums)
        ctx.spec, ctx.shares = spec, shares
        return all_sums

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = _GatheredLogSumExp.gradients(ctx, *gradient)
        return *operator.only_once(found, *gradient, *ctx.saved_tensors[:3]), None, None

    @staticmethod
    def gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """In a, b and p: of this rank's rows and columns alone."""
        a, b, p, all_a, all_b, all_sums = ctx.saved_tensors
        spec, shares, wanted = ctx.spec, ctx.shares, ctx.needs_input_grad
        everyone = Weighing(all_sums, _summed(gradient))
        own = Weighing(*(x[..., shares.own] for x in everyone))
        if b is None:
            ours = backends.gradients(a, all_a, p, spec, True, own, everyone, (wanted[0], False, wanted[2]), shares.start)
            return ours.rows, None, ours.exponent
        ours = backends.gradients(a, all_b, p, spec, False, own, None, (wanted[0], False, wanted[2]), shares.start)
        theirs = None
        if wanted[1]:
            theirs = backends.gradients(all_a, b, p, spec, False, everyone, None, (False, True, False), -shares.start).columns
        return ours.rows, theirs, ours.exponent


def _gathered(x: Tensor, shares: Shares, dim: int) -> Tensor:
    """All ranks' parts of x along `dim`; parts are padded to equal sizes for the exchange, as backends differ on others."""
    rows = x.detach().movedim(dim, 0)
    padded = rows.new_zeros(max(shares.sizes), *rows.shape[1:])
    padded[: rows.shape[0]] = rows
    parts = [torch.empty_like(padded) for _ in shares.sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, shares.sizes, strict=True)]).movedim(0, dim).contiguous()


def _summed(x: Tensor) -> Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total)
    return total
