"""Several gloo processes, each with other rows and another number of them, keep the state of one with all rows."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from entrec.branches import Bank, Centre, Queue, Teacher, optimal_transport_labels, sinkhorn, total_over_ranks
from tests.ranks import on_ranks

SIZES = {2: (5, 3), 4: (2, 1, 4, 3)}


def rows(seed: int, n: int, dim: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator) + torch.linspace(-2, 2, n)[:, None]  # other rows lie elsewhere


def index(n: int) -> Tensor:
    return torch.tensor([3, 1, 8, 3, 0, 1, 7, 5, 2, 3])[:n]  # 3 and 1 come several times, on different ranks


def steps(part: Callable[[Tensor], Tensor], n: int, total: Any) -> dict[str, Tensor]:
    """What each piece of state is after two steps, and the codes of `part`'s rows."""
    queue, bank, centre = Queue(7, 4), Bank(9, 4), Centre(4)
    for seed in range(2):
        queue.enqueue(part(rows(seed, n)))
        bank.replace(part(index(n)), part(rows(seed, n)), momentum=0.3)
        centre.update(part(rows(seed, n)))
    scores = rows(2, n).double()
    return {
        "queue": queue.rows,
        "pointer": queue.pointer,
        "bank": bank.entries,
        "centre": centre.value,
        "codes": sinkhorn(part(scores), 0.3, 5, total),
        "far apart": sinkhorn(1e3 * part(scores), 0.05, 2, total),
        "labels": optimal_transport_labels(part(scores), 0.3, 5, total),
    }


def _work(rank: int, world_size: int) -> dict[str, Any]:
    sizes = SIZES[world_size]

    def own(x: Tensor) -> Tensor:
        parts: tuple[Tensor, ...] = x.split(sizes)
        return parts[rank]

    found: dict[str, Any] = dict(steps(own, sum(sizes), total_over_ranks))
    student = nn.Linear(2, 1, bias=False)
    wrapped = DistributedDataParallel(student)
    teacher = Teacher(wrapped)
    nn.init.ones_(student.weight)
    teacher.update(wrapped, 0.0)
    found["teacher"] = next(teacher.parameters()).detach()
    try:
        Bank(9, 4).replace(own(index(sum(sizes))) + (100 if rank == 1 else 0), own(rows(0, sum(sizes))))
        found["fault"] = ""
    except ValueError as error:
        found["fault"] = str(error)
    before = torch.tensor([1.0 + rank, -math.inf])
    found["total"], found["largest"] = total_over_ranks(before), total_over_ranks(before, largest=True)
    found["kept"] = before
    return found


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    return on_ranks(request.param, _work, folder)


def test_state_is_that_of_one_process_and_the_same_on_all(ranks: list[dict[str, Any]]) -> None:
    exact = steps(lambda x: x, sum(SIZES[len(ranks)]), total_over_ranks)
    for found in ranks:
        for name in ("queue", "pointer", "bank"):
            assert torch.equal(found[name], exact[name]), name
        torch.testing.assert_close(found["centre"], exact["centre"])


@pytest.mark.parametrize("name", ["codes", "far apart", "labels"])
def test_codes_are_those_of_all_rows_together(ranks: list[dict[str, Any]], name: str) -> None:
    exact = steps(lambda x: x, sum(SIZES[len(ranks)]), total_over_ranks)
    torch.testing.assert_close(torch.cat([found[name] for found in ranks]), exact[name], rtol=1e-9, atol=1e-12)


def test_codes_of_each_rank_alone_differ(ranks: list[dict[str, Any]]) -> None:
    """Or the test above could not tell."""
    sizes = SIZES[len(ranks)]
    alone = torch.cat([sinkhorn(part, 0.3, 5) for part in rows(2, sum(sizes)).double().split(sizes)])
    assert (alone - torch.cat([found["codes"] for found in ranks])).abs().max() > 0.1


def test_a_student_in_ddp_is_followed(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert torch.equal(found["teacher"], torch.ones(1, 2))


def test_a_fault_on_one_rank_is_heard_by_all(ranks: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(ranks):
        assert ("index must be from 0 to 8" if rank == 1 else "rank 1 refused the input") in found["fault"]


def test_totals_are_sums_and_maxima_and_leave_their_input_alone(ranks: list[dict[str, Any]]) -> None:
    w = len(ranks)
    for rank, found in enumerate(ranks):
        assert found["total"].tolist() == [w * (w + 1) / 2, -math.inf]
        assert found["largest"].tolist() == [w, -math.inf]
        assert found["kept"].tolist() == [1.0 + rank, -math.inf]
