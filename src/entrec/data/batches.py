"""Which images make up which batch: a pure function of the seed and the epoch."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler

from entrec import checks

Draw = tuple[int, int]  # a place in the data set, and the seed of whatever is random about this draw of it


class Batches(Sampler[list[Draw]]):
    """An epoch's batches on one rank, for `DataLoader(batch_sampler=...)`.

    Each epoch has its own order of the data set, in which every image stands once. Batch b of the epoch is the b-th run of
    `batch_size` x `ranks` images of it, dealt to the ranks one after another, so that n ranks together see what one would
    with batches n times as large. All ranks have equally many batches.

    Args:
        n: images in the data set.
        batch_size: images per batch and rank; at most n / ranks.
        seed: of orders and draws; the same on every rank.
        rank: this process's place.
        ranks: how many processes there are.
        drop_last: leave out what does not fill a batch on every rank. Otherwise it makes a last, smaller batch, whose sizes
            differ by at most one between ranks (still left out where some rank would have none).
        weights: shape (n,), to draw n images with replacement in proportion to these instead; see `set_weights`.
        until: go on from epoch to epoch, up to this one, when iterated over, so that who loads ahead need not stop between two;
            by default, and where weights are set, which another epoch will have others of, an epoch is the end.
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        ranks: int = 1,
        drop_last: bool = True,
        weights: Tensor | None = None,
        until: int = 0,
    ) -> None:
        self.n, self.batch_size = checks.whole("n", n, 1), checks.whole("batch_size", batch_size, 1)
        self.seed, self.ranks = checks.whole("seed", seed, 0), checks.whole("ranks", ranks, 1)
        self.rank = checks.whole("rank", rank, 0)
        if rank >= ranks:
            raise ValueError(f"rank must be below ranks={ranks}, got {rank}")
        if batch_size * ranks > n:
            of = f" on each of {ranks} ranks" if ranks > 1 else ""
            raise ValueError(f"batch_size={batch_size}{of} is more than the data set's {n} images; take a smaller batch")
        self.drop_last, self.until = drop_last, checks.whole("until", until, 0)
        self.epoch = self.start = 0
        self.set_weights(weights)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        self.epoch, self.start = checks.whole("epoch", epoch, 0), 0

    def set_start(self, batch: int) -> None:
        """Begin at this batch of the epoch, as if those before it had been seen."""
        if checks.whole("batch", batch, 0) > self.per_epoch:
            raise ValueError(f"batch must be at most {self.per_epoch}, the batches of an epoch, got {batch}")
        self.start = batch

    def set_weights(self, weights: Tensor | None) -> None:
        """Draw with replacement in proportion to `weights` (n,) from now on; `None`: each image once per epoch."""
        if weights is not None:
            if weights.shape != (self.n,):
                raise ValueError(f"weights must have shape ({self.n},), one for each image, got {tuple(weights.shape)}")
            weights = weights.detach().cpu().double()
            if not (bool(weights.isfinite().all()) and bool((weights >= 0).all()) and weights.sum() > 0):
                raise ValueError("weights must be finite and not negative, and not all zero")
        self.weights = weights

    @property
    def per_epoch(self) -> int:
        """Batches of a whole epoch, wherever it begins."""
        whole, rest = divmod(self.n, self.batch_size * self.ranks)
        return whole + (not self.drop_last and rest >= self.ranks)

    def __len__(self) -> int:
        return self.per_epoch - self.start

    def __iter__(self) -> Iterator[list[Draw]]:
        epoch, start, weights = self.epoch, self.start, self.weights  # which may be set anew before the last of them is taken
        while True:
            order, generator = self._order(epoch, weights)
            seeds = torch.randint(2**32, (self.n,), generator=generator)  # a CPU generator heeds 32 bits of its seed
            for own in self._parts(start):
                yield list(zip(order[own].tolist(), seeds[own].tolist(), strict=True))
            epoch, start = epoch + 1, 0
            if epoch >= self.until or weights is not None:
                return

    def places(self, device: torch.device) -> Iterator[Tensor]:
        """The places alone, each batch's int64 (k,) on the device: the whole epoch's order is copied there at once."""
        order = self._order(self.epoch, self.weights)[0].to(device)
        yield from (order[own] for own in self._parts(self.start))

    def _order(self, epoch: int, weights: Tensor | None) -> tuple[Tensor, torch.Generator]:
        """The epoch's order of the data set, and the generator that drew it."""
        generator = torch.Generator().manual_seed(mixed(self.seed, epoch))
        order = torch.randperm(self.n, generator=generator) if weights is None else _weighted(weights, generator)
        return order, generator

    def _parts(self, start: int) -> Iterator[slice]:
        """Which part of the order each batch is."""
        width = self.batch_size * self.ranks
        for batch in range(start, self.per_epoch):
            first, count = batch * width, min(width, self.n - batch * width)
            yield slice(first + self.rank * count // self.ranks, first + (self.rank + 1) * count // self.ranks)


def in_order(n: int, batch_size: int) -> list[list[Draw]]:
    """The batches of a data set from its first image to its last, the last batch as small as it must be; for evaluation."""
    checks.whole("n", n, 0), checks.whole("batch_size", batch_size, 1)
    return [[(place, place) for place in range(i, min(i + batch_size, n))] for i in range(0, n, batch_size)]


def mixed(*numbers: int) -> int:
    """One seed of 63 bits made of several numbers, such that neighbours have nothing in common."""
    digest = hashlib.blake2b(",".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _weighted(weights: Tensor, generator: torch.Generator) -> Tensor:
    """As many places as there are weights, with replacement and in proportion to them."""
    edges = weights.cumsum(0)  # torch.multinomial would stop at 2^24 of them
    draws = torch.rand(len(weights), dtype=torch.float64, generator=generator) * edges[-1]
    last = int(weights.nonzero()[-1])  # rounding must not reach what weighs nothing
    return torch.searchsorted(edges, draws, right=True).clamp(max=last)
