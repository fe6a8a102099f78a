import math

import pytest
import torch
from torch import nn

from entrec.branches import Teacher, Tiny, cosine_ema, mlp


class Counting(nn.Module):
    """A module with a buffer that is no statistic of a normalisation."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("scale", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(self.linear(x)) + self.scale
        return result


def test_after_n_steps_it_is_the_closed_form() -> None:
    student = nn.Linear(3, 2).double()
    teacher = Teacher(student)
    values, m = [student.weight.detach().clone()], 0.9
    for _ in range(7):
        with torch.no_grad():
            student.weight.add_(torch.randn_like(student.weight))
        values.append(student.weight.detach().clone())
        teacher.update(student, m)
    exact = m**7 * values[0] + sum((1 - m) * m ** (7 - n) * values[n] for n in range(1, 8))
    assert isinstance(teacher.module, nn.Linear)
    torch.testing.assert_close(teacher.module.weight.data, exact, rtol=1e-12, atol=1e-12)


def test_a_constant_student_is_approached_at_the_rate_of_the_coefficient() -> None:
    student = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(student.weight)
    teacher = Teacher(student)
    nn.init.ones_(student.weight)
    for _ in range(50):
        teacher.update(student, 0.99)
    assert next(teacher.parameters()).item() == pytest.approx(1 - 0.99**50, rel=1e-5)


def test_coefficient_one_never_moves_and_zero_copies_bit_by_bit() -> None:
    student = mlp(4, 8, 3)
    teacher, still = Teacher(student), Teacher(student)
    start = [p.clone() for p in student.parameters()]
    for p in student.parameters():
        nn.init.normal_(p)
    teacher.update(student, 0.0)
    still.update(student, 1.0)
    for copied, kept, p, before in zip(teacher.parameters(), still.parameters(), student.parameters(), start, strict=True):
        assert torch.equal(copied, p)
        assert torch.equal(kept, before)


def test_it_is_a_frozen_copy_that_shares_nothing() -> None:
    student = Tiny()
    teacher = Teacher(student)
    assert not any(p.requires_grad for p in teacher.parameters())
    assert all(p.requires_grad for p in student.parameters())
    theirs = {t.data_ptr() for t in (*student.parameters(), *student.buffers())}
    assert not theirs & {t.data_ptr() for t in (*teacher.parameters(), *teacher.buffers())}
    assert not teacher(torch.randn(2, 3, 8, 8).requires_grad_()).requires_grad
    loss = student(torch.randn(2, 3, 8, 8)).sum()
    loss.backward()
    assert all(p.grad is None for p in teacher.parameters())


def test_statistics_of_batchnorm_are_its_own_and_other_buffers_the_students() -> None:
    student = Counting()
    teacher = Teacher(student)
    student(torch.randn(16, 3) + 5)
    student.scale.fill_(3.0)
    assert isinstance(teacher.module, Counting)
    before = {name: b.clone() for name, b in teacher.module.norm.named_buffers()}
    teacher.update(student, 0.9)
    for name, b in teacher.module.norm.named_buffers():
        assert torch.equal(b, before[name])
    assert torch.equal(teacher.module.scale, student.scale)
    teacher(torch.randn(16, 3))
    assert teacher.module.norm.num_batches_tracked == 1  # in train mode, as the student is
    assert not teacher.eval().module.training


def test_wrapped_students_are_unwrapped() -> None:
    student = nn.Linear(3, 2)
    compiled = torch.compile(student)
    assert isinstance(compiled, nn.Module)
    teacher = Teacher(compiled)
    assert isinstance(teacher.module, nn.Linear)
    nn.init.ones_(student.weight)
    teacher.update(compiled, 0.0)
    assert torch.equal(teacher.module.weight, student.weight)


def test_a_teacher_that_is_the_student_is_refused() -> None:
    student = nn.Linear(3, 2)
    teacher = Teacher(student)
    teacher.module = student
    with pytest.raises(ValueError, match="must share nothing, but weight is one tensor in both"):
        teacher.update(student, 0.9)


def test_another_structure_is_refused() -> None:
    teacher = Teacher(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="only one of them has bias"):
        teacher.update(nn.Linear(3, 2, bias=False), 0.9)
    with pytest.raises(ValueError, match=r"weight has shape \(2, 4\), and the teacher's \(2, 3\)"):
        teacher.update(nn.Linear(4, 2), 0.9)


def test_half_precision_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="float32 or better, got weight and 1 more in half precision"):
        Teacher(nn.Linear(3, 2).bfloat16())


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_coefficient_outside_0_to_1_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="coefficient must be from 0 to 1"):
        Teacher(nn.Linear(1, 1)).update(nn.Linear(1, 1), bad)
    with pytest.raises(ValueError, match="base must be from 0 to 1"):
        cosine_ema(bad, 0, 1)


def test_cosine_schedule_starts_at_the_base_and_ends_at_one() -> None:
    assert cosine_ema(0.996, 0, 100) == pytest.approx(0.996)
    assert cosine_ema(0.996, 50, 100) == pytest.approx(0.998)
    assert cosine_ema(0.996, 100, 100) == 1.0
    values = [cosine_ema(0.9, step, 20) for step in range(21)]
    assert values == sorted(values)
    with pytest.raises(ValueError, match="step must be from 0 to total=10, got 11"):
        cosine_ema(0.9, 11, 10)


def test_checkpoints_carry_it() -> None:
    student = mlp(4, 8, 3)
    teacher, again = Teacher(student), Teacher(mlp(4, 8, 3))
    nn.init.normal_(next(student.parameters()))
    teacher.update(student, 0.5)
    again.load_state_dict(teacher.state_dict(), strict=True)
    for part in (teacher, again):
        part.update(student, 0.5)
    torch.testing.assert_close(again.state_dict(), teacher.state_dict(), rtol=0, atol=0)
