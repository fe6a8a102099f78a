"""What a method remembers of past batches: a queue of the last rows, and a bank with one row per datum."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from entrec import checks
from entrec.pairwise import ranks


class Queue(nn.Module):
    """The last rows of past batches, first in, first out (MoCo, He et al., 2020; SwAV's queue).

    It starts with random unit vectors, as in MoCo, and all of its rows count as negatives from the first step; `filled` says
    how many of them are real. Where several processes run, a batch is that of all ranks, in the order of the ranks, so that
    all ranks hold the same queue. Enqueue after the loss: a row that is enqueued first is its own negative.

    Args:
        size: rows; a queue larger than the data set meets each datum as its own negative.
        dim: of a row.
        seed: of the random rows.

    Example:
        >>> queue = Queue(size=3, dim=1)
        >>> queue.enqueue(torch.tensor([[1.0], [2.0]]))
        >>> queue.enqueue(torch.tensor([[3.0], [4.0]]))
        >>> queue.contents().flatten()
        tensor([4., 2., 3.])
    """

    rows: Tensor
    pointer: Tensor
    filled: Tensor

    def __init__(self, size: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        self.register_buffer("rows", _unit_rows(checks.whole("size", size, 1), checks.whole("dim", dim, 1), seed))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    def contents(self) -> Tensor:
        """All rows, (size, dim), those that are still random included, in the order of storage, not of age."""
        return self.rows

    @torch.no_grad()
    def enqueue(self, rows: Tensor) -> None:
        """Put all ranks' rows (k, dim) in the place of the oldest; of more than `size`, the last stay."""
        (rows,), shares = ranks.agree(lambda: (_checked_rows(rows, self.rows),), rows)
        rows = ranks.gather(rows, shares, dim=0)
        size, given = len(self.rows), len(rows)
        kept = rows[-size:]
        offsets = torch.arange(given - len(kept), given, device=self.rows.device)
        self.rows[(self.pointer + offsets) % size] = kept.to(self.rows)
        self.pointer.add_(given).remainder_(size)
        self.filled.add_(given).clamp_(max=size)


class Bank(nn.Module):
    r"""One unit vector per datum, a moving average of its projections (instance discrimination, Wu et al., 2018).

    .. math:: e_i \leftarrow \mathrm{normalise}(m\, e_i + (1 - m)\, z_i / |z_i|)

    It starts with random unit vectors. Where several processes run, all ranks' rows are put in, so that all hold the same bank.

    Args:
        number: of data.
        dim: of a row.
        seed: of the random rows.

    Example:
        >>> bank = Bank(number=5, dim=2)
        >>> bank.replace(torch.tensor([3]), torch.tensor([[0.0, 7.0]]), momentum=0.0)
        >>> bank.entries[3]
        tensor([0., 1.])
    """

    entries: Tensor

    def __init__(self, number: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        self.register_buffer("entries", _unit_rows(checks.whole("number", number, 1), checks.whole("dim", dim, 1), seed))

    @torch.no_grad()
    def replace(self, index: Tensor, rows: Tensor, momentum: float = 0.5, validate: bool = True) -> None:
        """Move entries towards new rows; where a datum comes more than once, its last row counts, in the order of the ranks.

        Args:
            index: which data, int64 of shape (k,).
            rows: their projections, (k, dim).
            momentum: m, from 0 (replace) to 1 (never move); 0.5 in the paper.
            validate: look whether there are such data, which waits for the device.
        """

        def check() -> tuple[Tensor, ...]:
            if not 0 <= momentum <= 1:
                raise ValueError(f"momentum must be from 0 to 1, got {momentum}")
            found = _checked_rows(rows, self.entries)
            self._check_index(index, len(found), validate)
            return (found,)

        (rows,), shares = ranks.agree(check, rows)
        rows, index = ranks.gather(rows, shares, dim=0), ranks.gather(index, shares, dim=0)
        new = functional.normalize(checks.at_least_float32(rows), dim=1).to(self.entries)
        moved = functional.normalize(momentum * self.entries[index] + (1 - momentum) * new, dim=1)
        # All rows of one datum write its last one: what is written does not depend on the order of writing.
        order = torch.arange(len(index), device=index.device)
        last = order.new_zeros(len(self.entries)).scatter_reduce_(0, index, order, "amax")
        self.entries[index] = moved[last[index]]

    def _check_index(self, index: Tensor, rows: int, validate: bool) -> None:
        if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.shape != (rows,):
            given = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
            raise ValueError(f"index must be int64 of shape ({rows},), one per row, got {given}")
        if not validate:
            return
        low, high = (int(x) for x in index.aminmax())
        if low < 0 or high >= len(self.entries):
            raise ValueError(f"index must be from 0 to {len(self.entries) - 1}, got {low} to {high}")


def _checked_rows(rows: Tensor, held: Tensor) -> Tensor:
    checks.batch("rows", rows)
    checks.alike("the rows held", held, "rows", rows, rows=False)
    return rows.detach()


def _unit_rows(number: int, dim: int, seed: int) -> Tensor:
    return functional.normalize(torch.randn(number, dim, generator=torch.Generator().manual_seed(seed)), dim=1)
