"""Losses with a teacher on several gloo processes: the value and the parameters' gradients of one on the whole batch.

Every rank has other data, and another number of rows. The truth is written here from the formulas, in float64.
"""

import faulthandler
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from entrec.losses import BYOLLoss, DeepClusterLoss, DINOLoss, MemoryBankLoss, SwAVLoss
from tests.ranks import on_ranks

SIZES: dict[int, list[tuple[int, ...]]] = {1: [(8,)], 2: [(5, 3), (1, 7)], 4: [(4, 1, 6, 3)]}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


class Case(NamedTuple):
    """A loss, and its formula; both get three views, a teacher's codes of the first two, and labels."""

    call: Callable[[bool, list[Tensor], list[Tensor], Tensor], Tensor]
    exact: Callable[[list[Tensor], list[Tensor], Tensor], Tensor]


def cross_entropy(x: list[Tensor], p: list[Tensor], tau: float) -> Tensor:
    return torch.stack([functional.cross_entropy(x[s] / tau, p[t]) for t in range(2) for s in range(3) if s != t]).mean()


def byol(x: list[Tensor], p: list[Tensor]) -> Tensor:
    pairs = [(x[s], p[t]) for t in range(2) for s in range(3) if s != t]
    return torch.stack([(functional.normalize(a) - functional.normalize(b)).square().sum(1).mean() for a, b in pairs]).mean()


CASES: dict[str, Case] = {
    "byol": Case(lambda gather, x, p, y: BYOLLoss(gather)(x, p), lambda x, p, y: byol(x, p)),
    "dino": Case(lambda gather, x, p, y: DINOLoss(0.3, gather)(x, p), lambda x, p, y: cross_entropy(x, p, 0.3)),
    "swav": Case(lambda gather, x, p, y: SwAVLoss(0.2, gather)(x, p), lambda x, p, y: cross_entropy(x, p, 0.2)),
    "deep cluster": Case(
        lambda gather, x, p, y: DeepClusterLoss(0.4, gather)(x, y),
        lambda x, p, y: torch.stack([functional.cross_entropy(view / 0.4, y) for view in x]).mean(),
    ),
}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        self.teacher = nn.Linear(4, 3).requires_grad_(False)

    def forward(self, batch: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Of a batch (k, 3, 4): three views of each datum."""
        codes = functional.softmax(self.teacher(batch[:, :2]), dim=-1)
        return list(self.encoder(batch).unbind(dim=1)), list(codes.unbind(dim=1))

    def gradients(self) -> dict[str, Tensor]:
        return {name: p.grad.clone() for name, p in self.named_parameters() if p.grad is not None}


def data(rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every row differs, and the first lie elsewhere than the last."""
    x = torch.randn(rows, 3, 4, generator=torch.Generator().manual_seed(7)) + torch.linspace(-1, 1, rows)[:, None, None]
    return x.to(dtype), torch.arange(rows) * 5 % 3


def step(name: str, gather: bool, network: nn.Module, batch: Tensor, labels: Tensor) -> Tensor:
    logits, codes = network(batch)
    value = CASES[name].call(gather, logits, codes, labels)
    value.backward()
    return value.detach()


def _key(name: str, dtype: torch.dtype, sizes: tuple[int, ...], gather: bool) -> str:
    return f"{name} | {dtype} | {sizes} | {gather}"


def _fault(rank: int, name: str) -> str:
    x = torch.randn(4, 3)
    if rank == 1:
        x[0, 0] = torch.nan
    p = torch.full((4, 3), 1 / 3)
    try:
        CASES[name].call(True, [x, x, x], [p, p], torch.zeros(4, dtype=torch.int64))
    except ValueError as error:
        return str(error)
    return ""


def _count(rank: int, name: str) -> str:
    x, p = torch.randn(4, 3), torch.full((4, 3), 1 / 3)
    try:
        CASES[name].call(True, [x] * (2 + rank), [p, p], torch.zeros(4, dtype=torch.int64))
    except ValueError as error:
        return str(error)
    return ""


def _work(rank: int, world_size: int) -> dict[str, Any]:
    faulthandler.dump_traceback_later(100, exit=True)  # a rank that waits for ever fails the tests instead
    found: dict[str, Any] = {}
    for name in CASES:
        for dtype in TOLERANCE:
            for sizes in SIZES[world_size]:
                for gather in (True, False):
                    network = Network().to(dtype)
                    own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
                    batch, labels = (x[own] for x in data(sum(sizes), dtype))
                    value = step(name, gather, DistributedDataParallel(network), batch, labels)
                    found[_key(name, dtype, sizes, gather)] = {**network.gradients(), "value": value}
        found[f"fault | {name}"] = _fault(rank, name)
        found[f"count | {name}"] = _count(rank, name)
    faulthandler.cancel_dump_traceback_later()
    return found


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    return on_ranks(request.param, _work, folder)


def exact_step(name: str, rows: slice, total: int) -> dict[str, Tensor]:
    network = Network().double()
    batch, labels = (x[rows] for x in data(total, torch.float64))
    logits, codes = network(batch)
    value = CASES[name].exact(logits, codes, labels)
    value.backward()
    return {**network.gradients(), "value": value.detach()}


@pytest.mark.parametrize("name", CASES)
def test_one_process_without_a_group_is_the_formula(name: str) -> None:
    network = Network().double()
    value = step(name, True, network, *data(8, torch.float64))
    exact = exact_step(name, slice(None), 8)
    torch.testing.assert_close({**network.gradients(), "value": value}, exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gathered_ranks_are_one_process_on_the_whole_batch(ranks: list[dict[str, Any]], name: str, dtype: torch.dtype) -> None:
    for sizes in SIZES[len(ranks)]:
        exact = exact_step(name, slice(None), sum(sizes))
        for rank in ranks:
            found = rank[_key(name, dtype, sizes, True)]
            assert found.keys() == exact.keys()
            for key, truth in exact.items():
                error, scale = (found[key].double() - truth).norm(), max(float(truth.norm()), 0.05)
                assert error <= TOLERANCE[dtype] * scale, f"{key} of {sizes}"


@pytest.mark.parametrize("name", CASES)
def test_ranks_that_do_not_gather_average_one_loss_each(ranks: list[dict[str, Any]], name: str) -> None:
    for sizes in SIZES[len(ranks)]:
        ends = [sum(sizes[:rank]) for rank in range(len(sizes) + 1)]
        parts = [exact_step(name, slice(a, b), sum(sizes)) for a, b in pairwise(ends)]
        whole = exact_step(name, slice(None), sum(sizes))
        for rank, found in enumerate(ranks):
            result = found[_key(name, torch.float64, sizes, False)]
            torch.testing.assert_close(result["value"], parts[rank]["value"])
            assert (result["value"] - whole["value"]).abs() > 1e-4  # or the test above could not tell
            for key in whole.keys() - {"value"}:
                torch.testing.assert_close(result[key], torch.stack([part[key] for part in parts]).mean(dim=0))


@pytest.mark.parametrize("name", CASES)
def test_a_fault_on_one_rank_is_heard_by_all(ranks: list[dict[str, Any]], name: str) -> None:
    for rank, found in enumerate(ranks):
        assert ("must be finite" if rank == 1 else "rank 1 refused the input") in found[f"fault | {name}"]
        assert ("as many views" in found[f"count | {name}"]) or ("refused" in found[f"count | {name}"])


@pytest.mark.parametrize("name", CASES)
def test_each_loss_is_one_graph(name: str) -> None:
    logits, codes = Network()(data(8, torch.float32)[0])
    labels = data(8, torch.float32)[1]
    compiled = torch.compile(CASES[name].call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(False, logits, codes, labels), CASES[name].call(False, logits, codes, labels))


def test_the_peers_memory_bank_gives_the_loss_of_ours() -> None:
    peers = pytest.importorskip("lightly.loss")
    theirs = peers.NTXentLoss(temperature=0.2, memory_bank_size=(32, 8))
    query, key = torch.randn(6, 8, requires_grad=True), torch.randn(6, 8)
    theirs(query.detach(), key)  # makes its bank
    bank = theirs.memory_bank.bank.clone()
    bank = bank if bank.shape == (32, 8) else bank.T
    ours, exact = MemoryBankLoss(0.2)(query, key, bank), theirs(query, key)
    torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(ours, query), torch.autograd.grad(exact, query), rtol=1e-4, atol=1e-6)
