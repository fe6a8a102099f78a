"""The Triton kernels against dense float64, at sizes that Triton's interpreter can bear.

Run by test_kernels.py with TRITON_INTERPRET=1, so that a machine without a GPU checks them too.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from entrec import VonMisesFisher, device_checks, kde_entropy, pairwise_logsumexp
from entrec.checks import Fault
from entrec.losses import ERLoss, NTXentLoss
from entrec.pairwise import Precision, Similarity
from entrec.pairwise.rows import cosines, directions
from entrec.pairwise.similarity import to_sphere

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
    _, m, _ = sizes
    if exclude_diagonal and m == 1:
        pytest.skip("leaves no pair")
    if precision == "ieee" and similarity not in ("dot", "cosine"):
        pytest.skip("distances know one precision only")
    check_against_dense(similarity, sizes, exclude_diagonal, precision)


@pytest.mark.parametrize(
    ("similarity", "sizes"),
    [(("lp", 3.0), (5, 40, 3)), (("lp", 4.0), (5, 40, 3)), ("sqeuclidean", (9, 9, 33)), (("lp", 3.0), (5, 9, 33))],
    ids=str,
)
def test_exponents_by_products_and_distances_in_many_dimensions(similarity: Similarity, sizes: tuple[int, int, int]) -> None:
    check_against_dense(similarity, sizes, True, "fast")


def check_against_dense(
    similarity: Similarity, sizes: tuple[int, int, int], exclude_diagonal: bool, precision: Precision
) -> None:
    torch.manual_seed(0)
    k, m, d = sizes
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


@pytest.mark.parametrize("k", [600, 9000])
def test_large_sets_of_directions(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways for more rows than a program meets at once; the second is taken early, as so many rows would take minutes."""
    if k == 9000:
        k = 600
        monkeypatch.setattr("entrec.pairwise.kernels.sphere._WHOLE_ROWS_UP_TO", 0)
    torch.manual_seed(0)
    z = torch.randn(k, 4)
    wide = z.double().requires_grad_()
    points = z.clone().requires_grad_()
    weights = torch.randn(k)
    for exclude_diagonal in (False, True):
        options = {"similarity": "cosine", "scale": 5.0, "exclude_diagonal": exclude_diagonal}
        found = value_and_gradients("triton", [z], weights, **options)
        truth = value_and_gradients("dense", [z.double()], weights.double(), **options)
        for a, b in zip(found, truth, strict=True):
            assert (a - b).norm() <= 2e-3 * b.norm()
    value = NTXentLoss(0.2, backend="triton")(*points.chunk(2))
    exact = NTXentLoss(0.2, backend="dense")(*wide.chunk(2))
    torch.testing.assert_close(value.double(), exact, rtol=1e-3, atol=1e-3)
    (a,), (b,) = torch.autograd.grad(value, points), torch.autograd.grad(exact, wide)
    assert (a - b).norm() <= 4e-3 * b.norm()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_look_finds_what_is_wrong(dtype: torch.dtype) -> None:
    good = torch.randn(70, 3).to(dtype)
    for place, value, fault in (
        ((0, 0), 1.0, 0),
        ((69, 2), float("nan"), int(Fault.NOT_FINITE)),
        ((3, 1), float("-inf"), int(Fault.NOT_FINITE)),
        ((5,), 0.0, int(Fault.ZERO_VECTOR)),
    ):
        x = good.clone()
        x[place] = value
        for as_directions in (True, False):
            flag = torch.zeros((), dtype=torch.int32)
            device_checks.look(x, flag, as_directions)
            assert int(flag) == (fault if as_directions or fault != Fault.ZERO_VECTOR else 0)


@pytest.mark.parametrize(("k", "d"), [(1, 2), (70, 3), (5, 1100)])
def test_cosines_of_matching_rows(k: int, d: int) -> None:
    torch.manual_seed(0)
    g = torch.randn(2, k)
    a, b = (torch.randn(2, k, d) * size for size in (1e15, 1e-15))
    a, b = a.requires_grad_(), b.requires_grad_()
    wide_a, wide_b = (x.detach().double().requires_grad_() for x in (a, b))
    found, truth = cosines(a, b), cosines(wide_a, wide_b)
    torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-6)
    exact = torch.autograd.grad(truth, (wide_a, wide_b), g.double())
    for create_graph in (False, True):
        by_kernel = torch.autograd.grad(found, (a, b), g, retain_graph=True, create_graph=create_graph)
        for x, y in zip(by_kernel, exact, strict=True):
            assert ((x.double() - y).norm(dim=-1) <= 1e-5 * y.norm(dim=-1).max()).all()
    by_kernel[0].sum().backward()  # a second time, by plain steps


def test_the_cosine_of_a_zero_row_is_zero_and_so_is_its_gradient() -> None:
    a = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    value = cosines(a, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    torch.testing.assert_close(value.detach(), torch.tensor([0.0, 0.6]))
    (gradient,) = torch.autograd.grad(value.sum(), a)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.0], [0.128, -0.096]]))


@pytest.mark.parametrize(
    "loss", [NTXentLoss(0.2, backend="triton"), ERLoss(VonMisesFisher(5.0), estimator="joe", backend="triton")]
)
def test_the_fused_kernels_are_not_differentiated_twice_in_silence(loss: Callable[..., Tensor]) -> None:
    z1, z2 = torch.randn(2, 6, 3).requires_grad_().unbind()
    (gradient,) = torch.autograd.grad(loss(z1, z2), z1, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("similarity", ["dot", "cosine", "l1"])
def test_the_operator_keeps_what_it_promises_the_compiler(similarity: str) -> None:
    points = torch.randn(3, 9).T.requires_grad_()
    others = torch.randn(3, 9).T.requires_grad_()
    for b in (None, others) if similarity != "cosine" else (None,):
        arguments = (points, b, None, similarity, 1.0, 0.5, False, False, similarity == "cosine", "fast", "triton")
        torch.library.opcheck(torch.ops.entrec.pairwise_logsumexp, arguments, test_utils=("test_schema", "test_faketensor"))
        value = torch.compile(
            lambda x, y: pairwise_logsumexp(x, y, similarity, 0.5, backend="triton", validate=False),  # type: ignore[arg-type]
            backend="aot_eager",
        )(points, points if b is None else b)
        torch.autograd.grad(value.sum(), points)


@pytest.mark.parametrize(("k", "d"), [(1, 2), (70, 3), (5, 1100)])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_directions_of_rows(k: int, d: int, size: float) -> None:
    torch.manual_seed(0)
    z = (size * torch.randn(2, k, d)).requires_grad_()
    wide = z.detach().double().requires_grad_()
    g = torch.randn(2, k, d)
    found, truth = directions(z), to_sphere(wide)
    torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-6)
    (exact,) = torch.autograd.grad(truth, wide, g.double())
    for create_graph in (False, True):
        (gradient,) = torch.autograd.grad(found, z, g, retain_graph=True, create_graph=create_graph)
        assert ((gradient.double() - exact).norm(dim=-1) <= 1e-5 * exact.norm(dim=-1).max()).all()
