"""Ranks that cannot act as one say so, all of them, instead of waiting for each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from entrec import Gaussian, VonMisesFisher
from entrec.losses import AlignUniformLoss, ERLoss, InfoNCELoss, MemoryBankLoss, NTXentLoss
from tests.ranks import on_ranks

LOSSES: dict[str, Callable[..., Tensor]] = {
    "NTXentLoss": NTXentLoss(gather_distributed=True),
    "InfoNCELoss": InfoNCELoss(gather_distributed=True),
    "AlignUniformLoss": AlignUniformLoss(gather_distributed=True),
    "ERLoss joe": ERLoss(VonMisesFisher(5.0), estimator="joe", gather_distributed=True),
    "ERLoss plugin": ERLoss(Gaussian(1.0), gather_distributed=True),
}


def message(call: Callable[[], Any]) -> str:
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    return "nothing"


def work(rank: int, _: int) -> dict[str, str]:
    z1, z2 = torch.randn(2, 4, 3)
    said = {}
    for name, loss in LOSSES.items():
        x = z1.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(x, z2), x, create_graph=True)
        said[f"twice, {name}"] = message(gradient.square().sum().backward)
    loss = LOSSES["NTXentLoss"]
    said["gradient"] = message(lambda: loss(z1.clone().requires_grad_(rank == 0), z2))
    said["dtype"] = message(lambda: loss(*(x.to(torch.float64 if rank else torch.float32) for x in (z1, z2))))
    views = [torch.randn(4, 3) for _ in range(2 + rank)]
    said["views"] = message(lambda: LOSSES["InfoNCELoss"](*views))
    bank: Any = torch.randn(5, 3) if rank else None
    said["bank"] = message(lambda: MemoryBankLoss(gather_distributed=True)(z1, z2, bank))
    said["empty"] = message(lambda: loss(*((z1, z2) if rank else (z1[:0], z2[:0]))))
    said["in step again"] = str(round(float(loss(torch.ones(3, 2), torch.ones(3, 2))), 4))
    return said


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return on_ranks(2, work, Path(tmp_path_factory.mktemp("ranks")))


@pytest.mark.parametrize("name", LOSSES)
def test_a_second_derivative_across_ranks_is_refused(said: list[dict[str, str]], name: str) -> None:
    for rank in said:
        assert "second derivative" in rank[f"twice, {name}"] or "differentiate twice" in rank[f"twice, {name}"]


@pytest.mark.parametrize(
    ("what", "words"),
    [("gradient", "need a gradient"), ("dtype", "dtype"), ("views", "as many views")],
)
def test_ranks_that_differ_all_say_how(said: list[dict[str, str]], what: str, words: str) -> None:
    for rank in said:
        assert words in rank[what]


@pytest.mark.parametrize(("what", "words"), [("bank", "bank must be a torch.Tensor"), ("empty", "at least 1 row")])
def test_what_one_rank_refuses_all_ranks_hear_of(said: list[dict[str, str]], what: str, words: str) -> None:
    assert words in said[0][what]
    assert "rank 0 refused the input" in said[1][what]


def test_afterwards_they_are_in_step(said: list[dict[str, str]]) -> None:
    assert [rank["in step again"] for rank in said] == ["2.3979"] * 2  # log 11: twelve equal rows
