import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor

from entrec import VonMisesFisher
from entrec.metrics import KDEEntropy
from entrec.metrics.reservoir import _mix, _occurrence
from tests.ranks import on_ranks

KERNEL = VonMisesFisher(10.0)


def _kept(z: Tensor, cap: int, seed: int = 0, batch_size: int = 64) -> Tensor:
    metric = KDEEntropy(KERNEL, max_samples=cap, seed=seed)
    for batch in z.split(batch_size):
        metric.update(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return metric.kept()


def test_below_the_cap_every_row_is_kept_once() -> None:
    z = torch.randn(300, 4)
    kept = _kept(z, cap=300)
    assert torch.equal(kept[kept[:, 0].argsort()], z[z[:, 0].argsort()])


def test_above_the_cap_order_and_batches_do_not_matter() -> None:
    z = torch.randn(1000, 4)
    kept = _kept(z, cap=100)
    assert kept.shape == (100, 4)
    assert torch.equal(kept, _kept(z[torch.randperm(1000)], cap=100, batch_size=7))
    assert torch.equal(kept, _kept(z.flip(0), cap=100, batch_size=1000))


def test_the_seed_draws_another_sample() -> None:
    z = torch.randn(1000, 4)
    assert not torch.equal(_kept(z, cap=100, seed=0), _kept(z, cap=100, seed=1))


def test_every_row_is_kept_equally_often() -> None:
    z = torch.arange(200.0)[:, None].expand(-1, 2) + 1
    repeats, cap = 300, 50
    counts = torch.zeros(200)
    for seed in range(repeats):
        counts[_kept(z, cap, seed)[:, 0].long() - 1] += 1
    expected = repeats * cap / 200
    chi_square = float(((counts - expected) ** 2 / (expected * (1 - cap / 200))).sum())
    assert abs(chi_square - 200) < 5 * math.sqrt(2 * 200)


def test_equal_rows_are_kept_in_proportion() -> None:
    # Two thirds of the rows are one point, as from a collapsed encoder: all or none of them would be a wrong sample.
    z = torch.cat([torch.ones(2000, 4), torch.randn(1000, 4)])[torch.randperm(3000)]
    shares = [float((_kept(z, 300, seed) == 1).all(dim=-1).float().mean()) for seed in range(20)]
    mean = sum(shares) / len(shares)
    assert mean == pytest.approx(2 / 3, abs=4 * math.sqrt(2 / 9 / 300 / 20))


def test_occurrence_counts_equal_hashes_before() -> None:
    history, hashes = torch.tensor([5, 7, 5]), torch.tensor([5, 9, 5, 7])
    assert _occurrence(history, hashes).tolist() == [2, 0, 3, 1]


def test_mix_is_splitmix64() -> None:
    def splitmix(x: int) -> int:
        mask = 2**64 - 1
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    for value in (0, 1, -1, 123456789, -(2**63), 2**63 - 1):
        assert int(_mix(torch.tensor(value))) % 2**64 == splitmix(value % 2**64)


def test_the_cap_is_printed_when_it_bites() -> None:
    metric = KDEEntropy(KERNEL, max_samples=50)
    metric.update(torch.randn(60, 3))
    with pytest.warns(UserWarning, match=r"keeps max_samples=50 of the 60"):
        metric.compute()
    assert "max_samples=50" in repr(metric)


def test_nothing_seen_is_an_error() -> None:
    with pytest.raises(ValueError, match="KDEEntropy has seen no projections"):
        KDEEntropy(KERNEL).kept()


def _sample_of_rank(rank: int, world_size: int, z: Tensor) -> Tensor:
    metric = KDEEntropy(KERNEL, max_samples=100)
    # Unequal shares, and nothing at all for the last rank of three.
    bounds = [0, 250, 600] if world_size == 2 else [0, 400, 600, 600]
    share = z[bounds[rank] : bounds[rank + 1]]
    for batch in share.split(33) if len(share) else ():
        metric.update(batch)
    metric.sync()
    return metric.kept()


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_keep_what_one_process_keeps(world_size: int, tmp_path: Path) -> None:
    z = torch.randn(600, 4)
    expected = _kept(z, cap=100)
    for kept in on_ranks(world_size, _sample_of_rank, tmp_path, z):
        assert torch.equal(kept, expected)
