import pytest
import torch
from torch import Tensor

from entrec.branches import Bank, Queue
from entrec.losses import MemoryBankLoss


def numbered(first: int, last: int) -> Tensor:
    return torch.arange(first, last + 1.0).unsqueeze(1)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 4, 5, 1), (5,), (6,), (13, 2), (1, 12, 3), (5, 10, 5)])
def test_it_holds_what_a_list_of_the_last_rows_holds(sizes: tuple[int, ...]) -> None:
    queue = Queue(size=5, dim=1)
    seen: list[float] = []
    for size in sizes:
        batch = numbered(len(seen) + 1, len(seen) + size)
        queue.enqueue(batch)
        seen += batch.flatten().tolist()
        real = seen[-5:]
        assert int(queue.filled) == len(real)
        assert set(real) <= set(queue.contents().flatten().tolist())
        pointer = int(queue.pointer)
        by_age = torch.cat([queue.rows[pointer:], queue.rows[:pointer]]).flatten().tolist()
        assert by_age[5 - len(real) :] == real


def test_it_starts_with_seeded_unit_vectors_and_all_count() -> None:
    queue = Queue(64, 8)
    torch.testing.assert_close(queue.contents().norm(dim=1), torch.ones(64))
    torch.manual_seed(5)
    assert torch.equal(Queue(64, 8).rows, queue.rows)
    assert not torch.equal(Queue(64, 8, seed=1).rows, queue.rows)
    queue.enqueue(torch.zeros(3, 8))
    assert queue.contents().shape == (64, 8)
    assert int(queue.filled) == 3


def test_rows_are_kept_without_a_graph_and_apart_from_what_was_given() -> None:
    queue, rows = Queue(4, 2), torch.randn(2, 2, requires_grad=True)
    queue.enqueue(rows)
    assert not queue.rows.requires_grad
    with torch.no_grad():
        rows.zero_()
    assert queue.rows[:2].abs().sum() > 0


def test_a_restored_queue_goes_on_as_the_first_would() -> None:
    queue, again = Queue(5, 2), Queue(5, 2, seed=9)
    queue.enqueue(torch.randn(3, 2))
    again.load_state_dict(queue.state_dict(), strict=True)
    batch = torch.randn(4, 2)
    for x in (queue, again):
        x.enqueue(batch)
    torch.testing.assert_close(again.state_dict(), queue.state_dict(), rtol=0, atol=0)


def test_enqueuing_before_the_backward_pass_leaves_the_gradient_as_it_was() -> None:
    queue, z = Queue(6, 4), torch.randn(2, 4, requires_grad=True)
    losses = [MemoryBankLoss()(z, z, queue.contents()) for _ in range(2)]
    (before,) = torch.autograd.grad(losses[0], z)
    queue.enqueue(z)
    (after,) = torch.autograd.grad(losses[1], z)
    assert torch.equal(before, after)


def test_bad_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="same last dimension"):
        Queue(4, 3).enqueue(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="at least 1 row"):
        Queue(4, 3).enqueue(torch.zeros(0, 3))
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        Queue(0, 3)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 1.0])
def test_a_banks_entries_move_as_the_formula_says(momentum: float) -> None:
    bank = Bank(6, 3)
    before, rows, index = bank.entries.clone(), torch.randn(3, 3), torch.tensor([4, 0, 2])
    bank.replace(index, rows, momentum)
    for i, row in zip(index.tolist(), rows, strict=True):
        mixed = momentum * before[i] + (1 - momentum) * row / row.norm()
        torch.testing.assert_close(bank.entries[i], mixed / mixed.norm())
    for i in (1, 3, 5):
        assert torch.equal(bank.entries[i], before[i])


def test_a_datum_that_comes_twice_takes_its_last_row() -> None:
    bank, once = Bank(5, 3), Bank(5, 3)
    rows = torch.randn(4, 3)
    bank.replace(torch.tensor([2, 0, 2, 2]), rows, 0.5)
    once.replace(torch.tensor([0, 2]), rows[[1, 3]], 0.5)
    assert torch.equal(bank.entries, once.entries)


def test_bad_indices_are_refused() -> None:
    bank, rows = Bank(5, 3), torch.randn(2, 3)
    for bad in (torch.tensor([0, 5]), torch.tensor([-1, 0])):
        with pytest.raises(ValueError, match="index must be from 0 to 4, got"):
            bank.replace(bad, rows)
    for shape in (torch.tensor([1]), torch.tensor([1.0, 2.0])):
        with pytest.raises(ValueError, match=r"index must be int64 of shape \(2,\), one per row, got"):
            bank.replace(shape, rows)
    with pytest.raises(ValueError, match="momentum must be from 0 to 1"):
        bank.replace(torch.tensor([0, 1]), rows, 1.5)
