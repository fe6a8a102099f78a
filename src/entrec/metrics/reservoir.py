"""Projections kept for a metric whose value is not a mean over batches.

A kernel entropy of a data set is not the mean of its batches' entropies, so the state of such a metric is the projections
themselves. Above a cap it is a sample of them, drawn so that it depends on nothing but the projections and the seed: not on
their order, nor on how they were cut into batches or dealt to ranks. Each row's priority is a hash of its own bits, and the
rows of lowest priority are kept; the lowest of two samples together are the lowest of the whole, so ranks merge exactly.
(One exception: bitwise copies of a row on different ranks are kept or dropped together. Each is still kept as often as any
other row, but the sample is not the one that a single process would draw.)
"""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import rank_zero_warn

from entrec import checks
from entrec.metrics.instance import keep_apart

DEFAULT_CAP = 16384


class ProjectionMetric(Metric):
    """A metric that is a function of all projections; torchmetrics keeps state on the metric, so the reservoir is one.

    Args:
        max_samples: the cap; a warning says when a value is that of a sample. Memory is at most that of 2 x max_samples rows
            and one batch, and 8 bytes for every row ever seen.
        seed: of the sample; the same on every rank.
        **kwargs: torchmetrics' own, such as `dist_sync_on_step`.
    """

    full_state_update = True  # the running state is not a sum of the batches' states
    is_differentiable = False

    rows: list[Tensor]
    priorities: list[Tensor]
    pending: list[Tensor]
    history: list[Tensor]
    seen: Tensor

    def __init__(self, max_samples: int = DEFAULT_CAP, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_samples = checks.whole("max_samples", max_samples, 2)
        self.seed = checks.whole("seed", seed, 0)
        self.add_state("rows", [], dist_reduce_fx=_cat_rows)
        self.add_state("priorities", [], dist_reduce_fx=_cat)
        self.add_state("pending", [], dist_reduce_fx=_cat_rows)  # not yet given a priority
        self.add_state("history", [], dist_reduce_fx=_cat)  # the hash of every row that was
        self.add_state("seen", torch.tensor(0), dist_reduce_fx="sum")
        keep_apart(self)

    def keep(self, *projections: Tensor) -> None:
        """Add a batch: the matching rows of one or two tensors of shape (k, d), which have been checked."""
        batch = torch.cat([z.to(self.dtype) for z in projections], dim=-1)
        self.pending.append(batch)
        self.seen += len(batch)
        if sum(map(len, self.pending)) > self.max_samples:
            self._settle()

    def kept(self) -> Tensor:
        """All rows, or the sample of them, over all ranks, in an order of its own; shape (n, width)."""
        seen = int(self.seen)
        if seen == 0:
            raise ValueError(f"{type(self).__name__} has seen no projections: call update first")
        self._settle()
        if seen > self.max_samples:
            rank_zero_warn(
                f"{type(self).__name__} keeps max_samples={self.max_samples} of the {seen} projections it has seen; its value "
                f"is that of this sample (seed {self.seed})",
                stacklevel=2,
            )
        return self.rows[0]

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gather over ranks, first making every rank hold exactly one tensor per state, even one that saw nothing."""
        if not self._is_synced:
            self._settle()
        super().sync(*args, **kwargs)

    def extra_repr(self) -> str:
        """The reservoir's settings."""
        return f"max_samples={self.max_samples}, seed={self.seed}"

    def _settle(self) -> None:
        """Give every pending row its priority, and keep the rows of lowest priority."""
        rows, priorities = _cat_rows(self._listed("rows")), _cat(self._listed("priorities"))
        pending, history = _cat_rows(self._listed("pending")), _cat(self._listed("history"))
        if len(pending):
            hashes = _hash(pending, self.seed)
            # Equal rows (a collapsed encoder's) must not be kept or dropped as one: the n-th of them has its own priority.
            priorities = torch.cat([priorities.to(hashes.device), _mix(hashes + _occurrence(history, hashes))])
            rows = torch.cat([rows, pending]) if len(rows) else pending
            history = torch.cat([history.to(hashes.device), hashes])
        order = torch.argsort(priorities)[: self.max_samples]
        self.rows, self.priorities = [rows[order]], [priorities[order]]
        self.pending, self.history = [rows.new_empty(0, 0)], [history]

    def _listed(self, name: str) -> list[Tensor]:
        """A state as a list of tensors: after a synchronisation it is one tensor."""
        state = getattr(self, name)
        if isinstance(state, Tensor):
            return [state]
        if state:
            return list(state)
        integers = name in ("priorities", "history")
        return [torch.empty(0, dtype=torch.int64 if integers else self.dtype, device=self.device)]


def _cat(parts: list[Tensor]) -> Tensor:
    return torch.cat(list(parts))


def _cat_rows(parts: list[Tensor]) -> Tensor:
    """Concatenate rows; a part without any may have another width."""
    filled = [part for part in parts if part.numel()]
    return torch.cat(filled) if filled else parts[0].new_empty(0, 0)


def _hash(rows: Tensor, seed: int) -> Tensor:
    """A 64-bit hash of each row's bits: a seeded random linear form of them, modulo 2^64."""
    generator = torch.Generator().manual_seed(seed)
    wide = checks.at_least_float32(rows) + 0.0  # which makes -0 and 0 the same
    bits = wide.contiguous().view(torch.int64 if wide.dtype == torch.float64 else torch.int32).long()
    coefficients = torch.randint(-(2**63), 2**63 - 1, (rows.shape[-1],), generator=generator) | 1
    return _mix((bits * coefficients.to(rows.device)).sum(dim=-1))


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser: every bit of the input moves every bit of the output."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _occurrence(history: Tensor, hashes: Tensor) -> Tensor:
    """How many times each hash stood before it, in the history and among the hashes themselves."""
    everything = torch.cat([history.to(hashes.device), hashes])
    ordered, order = torch.sort(everything, stable=True)
    place = torch.arange(len(ordered), device=ordered.device)
    first = torch.searchsorted(ordered, ordered)
    occurrence = torch.empty_like(place)
    occurrence[order] = place - first
    return occurrence[len(history) :]
