"""The Triton kernels against dense float64, at sizes that Triton's interpreter can bear.

Run by test_kernels.py with TRITON_INTERPRET=1, so that a machine without a GPU checks them too.
"""

import pytest
import torch
from torch import Tensor

from entrec import VonMisesFisher, kde_entropy, pairwise_logsumexp
from entrec.pairwise import Precision, Similarity

SIZES = [(1, 1, 1), (2, 2, 3), (66, 66, 6), (5, 70, 9)]
SIMILARITIES: list[Similarity] = ["dot", "cosine", "sqeuclidean", "l1", ("lp", 1.5)]
TOLERANCE: dict[Precision, float] = {"fast": 2e-3, "ieee": 1e-5}


def value_and_gradients(backend: str, inputs: list[Tensor], weights: Tensor, **options: object) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    sums = pairwise_logsumexp(leaves[0], leaves[-1], backend=backend, **options)  # type: ignore[arg-type]
    return [sums.detach(), *torch.autograd.grad((weights * sums.to(weights.dtype)).sum(), leaves)]


@pytest.mark.parametrize("precision", ["fast", "ieee"])
@pytest.mark.parametrize("exclude_diagonal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
def test_kernels_agree_with_dense_float64(
    similarity: Similarity, sizes: tuple[int, int, int], exclude_diagonal: bool, precision: Precision
) -> None:
    torch.manual_seed(0)
    k, m, d = sizes
    if exclude_diagonal and m == 1:
        pytest.skip("leaves no pair")
    if precision == "ieee" and similarity not in ("dot", "cosine"):
        pytest.skip("distances know one precision only")
    first = torch.randn(2, k, d)
    for inputs in ([first], [first, torch.randn(2, m, d)]) if k == m else ([first, torch.randn(2, m, d)],):
        weights = torch.randn(2, k, dtype=torch.float64)
        options = {"similarity": similarity, "scale": 0.8, "exclude_diagonal": exclude_diagonal}
        found = value_and_gradients("triton", inputs, weights, precision=precision, **options)
        truth = value_and_gradients("dense", [x.double() for x in inputs], weights, **options)
        for a, b in zip(found, truth, strict=True):
            assert a.dtype == torch.float32
            assert (a - b).norm() <= TOLERANCE[precision] * b.norm() + 1e-6 * b.numel() ** 0.5  # log(1 + 1e-5) has few digits


def test_rows_wider_than_a_program_holds() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(9, 300), torch.randn(5, 300)]
    weights = torch.randn(9, dtype=torch.float64)
    found = value_and_gradients("triton", inputs, weights, similarity="dot", scale=0.05, precision="ieee")
    truth = value_and_gradients("dense", [x.double() for x in inputs], weights, similarity="dot", scale=0.05)
    for a, b in zip(found, truth, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_the_entropy_of_directions(leave_one_out: bool) -> None:
    torch.manual_seed(0)
    z = (torch.randn(2, 77, 9) + 0.5).requires_grad_()
    wide = z.detach().double().requires_grad_()
    for estimator in ("joe", "plugin"):
        found = kde_entropy(z, VonMisesFisher(10.0), estimator, leave_one_out, backend="triton")
        truth = kde_entropy(wide, VonMisesFisher(10.0), estimator, leave_one_out, backend="dense")
        torch.testing.assert_close(found.double(), truth, rtol=5e-4, atol=5e-4)
        (a,), (b,) = torch.autograd.grad(found.sum(), z), torch.autograd.grad(truth.sum(), wide)
        assert (a - b).norm() <= 4e-3 * b.norm()
