import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional

from entrec import discrete_entropy, discrete_reconstruction


def distributions(k: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.softmax(2 * torch.randn(k, d, dtype=torch.float64), dim=1).to(dtype)


def entropy_by_hand(probs: Tensor) -> float:
    rows: list[list[float]] = probs.tolist()
    marginal = [sum(row[w] for row in rows) / len(rows) for w in range(len(rows[0]))]
    return -sum(p * math.log(p) for p in marginal if p > 0)


@pytest.mark.parametrize("d", [1, 2, 10, 1000])
def test_uniform_codes_have_entropy_log_d(d: int) -> None:
    assert discrete_entropy(torch.full((6, d), 1 / d, dtype=torch.float64)).item() == pytest.approx(math.log(d))
    assert discrete_entropy(torch.eye(d, dtype=torch.float64)).item() == pytest.approx(math.log(d))


def test_one_code_shared_by_all_has_entropy_zero() -> None:
    assert discrete_entropy(torch.eye(10)[:1].expand(50, 10)).item() == 0.0


def test_entropy_falls_as_codes_collapse() -> None:
    used = [discrete_entropy(torch.eye(64)[torch.arange(64) % codes]).item() for codes in (64, 16, 4, 1)]
    assert used == pytest.approx([math.log(codes) for codes in (64, 16, 4, 1)], abs=1e-6)


def test_entropy_of_one_hot_codes_is_that_of_their_frequencies() -> None:
    codes = torch.tensor([0, 0, 0, 0, 1, 1, 2, 3])
    exact = 0.5 * math.log(2) + 0.25 * math.log(4) + 0.25 * math.log(8)
    assert discrete_entropy(functional.one_hot(codes, 5).double()).item() == pytest.approx(exact)


def test_entropy_is_that_of_the_batch_mean() -> None:
    probs = distributions(12, 7)
    assert discrete_entropy(probs).item() == pytest.approx(entropy_by_hand(probs), rel=1e-12)


@pytest.mark.parametrize("chunks", [1, 2, 3, 12])
def test_chunks_average_the_entropies_of_consecutive_rows(chunks: int) -> None:
    probs = distributions(12, 7)
    size = 12 // chunks
    parts = [entropy_by_hand(probs[start : start + size]) for start in range(0, 12, size)]
    assert discrete_entropy(probs, chunks).item() == pytest.approx(sum(parts) / chunks, rel=1e-12)


def test_chunks_of_one_row_each_leave_the_mean_entropy_of_the_rows() -> None:
    assert discrete_entropy(torch.eye(8), chunks=8).item() == 0.0


def test_more_chunks_never_raise_the_entropy() -> None:
    probs = distributions(24, 7)
    values = [discrete_entropy(probs, chunks).item() for chunks in (1, 2, 4, 8, 24)]
    assert values == sorted(values, reverse=True)  # the entropy is concave


def test_order_of_samples_and_names_of_classes_do_not_matter() -> None:
    probs = distributions(12, 7)
    shuffled = probs[torch.randperm(12)][:, torch.randperm(7)]
    torch.testing.assert_close(discrete_entropy(shuffled), discrete_entropy(probs))


@pytest.mark.parametrize("chunks", [1, 3])
def test_entropy_passes_gradcheck(chunks: int) -> None:
    assert gradcheck(lambda p: discrete_entropy(p, chunks), (distributions(6, 4).requires_grad_(),))


def test_a_class_without_mass_has_gradient_zero() -> None:
    probs = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(discrete_entropy(probs), probs)
    marginal = torch.tensor([0.375, 0.625], dtype=torch.float64)
    torch.testing.assert_close(gradient[:, :2], (-(marginal.log() + 1) / 2).expand(2, 2))
    assert gradient[:, 2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [4, 4096])
def test_half_precision_probabilities_give_float32_values_and_finite_gradients(d: int, dtype: torch.dtype) -> None:
    probs = distributions(8, d, dtype).requires_grad_()
    value, exact = discrete_entropy(probs), discrete_entropy(probs.double(), validate=False)  # sums are off by its rounding
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    assert torch.isfinite(torch.autograd.grad(value, probs)[0]).all()


def test_reconstruction_is_the_mean_expected_log_probability() -> None:
    p, log_q = distributions(6, 5), distributions(6, 5).log()
    by_hand = sum(p[i, w].item() * log_q[i, w].item() for i in range(6) for w in range(5)) / 6
    assert discrete_reconstruction(p, log_q).item() == pytest.approx(by_hand, rel=1e-12)


def test_reconstruction_is_minus_torchs_cross_entropy() -> None:
    p, logits = distributions(6, 5), torch.randn(6, 5, dtype=torch.float64)
    exact = -functional.cross_entropy(logits, p)
    torch.testing.assert_close(discrete_reconstruction(p, functional.log_softmax(logits, dim=1)), exact)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    one_hot = functional.one_hot(labels, 5).double()
    exact = -functional.cross_entropy(logits, labels)
    torch.testing.assert_close(discrete_reconstruction(one_hot, functional.log_softmax(logits, dim=1)), exact)


def test_certain_and_right_codes_reconstruct_perfectly() -> None:
    codes = torch.eye(4)
    assert discrete_reconstruction(codes, codes.log()).item() == 0.0  # log q is -infinity off the diagonal


def test_impossible_codes_reconstruct_infinitely_badly() -> None:
    assert discrete_reconstruction(torch.eye(4), torch.eye(4).roll(1, 0).log()).item() == -math.inf


def test_classes_without_target_mass_get_finite_gradients() -> None:
    p = torch.eye(3).requires_grad_()
    log_q = torch.eye(3).log().requires_grad_()
    for gradient in torch.autograd.grad(discrete_reconstruction(p, log_q), (p, log_q)):
        assert torch.isfinite(gradient).all()


def test_entropy_plus_reconstruction_is_at_most_log_d() -> None:
    p, log_q = distributions(20, 5), distributions(20, 5).log()
    assert (discrete_entropy(p) + discrete_reconstruction(p, log_q)).item() <= math.log(5)
    codes = torch.eye(5, dtype=torch.float64)
    best = discrete_entropy(codes) + discrete_reconstruction(codes, codes.log())
    assert best.item() == pytest.approx(math.log(5))


def test_no_prediction_reconstructs_better_than_the_target_itself() -> None:
    p = distributions(20, 5)
    best = discrete_reconstruction(p, p.log())
    assert discrete_reconstruction(p, distributions(20, 5).log()) < best


def test_reconstruction_passes_gradcheck() -> None:
    p, log_q = distributions(4, 3).requires_grad_(), distributions(4, 3).log().requires_grad_()
    assert gradcheck(lambda p, log_q: discrete_reconstruction(p, log_q), (p, log_q))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_reconstruction_gives_float32_values_and_finite_gradients(dtype: torch.dtype) -> None:
    p = distributions(8, 100, dtype).requires_grad_()
    log_q = distributions(8, 100).log().to(dtype).requires_grad_()
    value, exact = discrete_reconstruction(p, log_q), discrete_reconstruction(p.double(), log_q.double(), validate=False)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    for gradient in torch.autograd.grad(value, (p, log_q)):
        assert torch.isfinite(gradient).all()
