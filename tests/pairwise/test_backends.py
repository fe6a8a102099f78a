"""Every backend against a dense float64 reference that is written here from the formulas, on the devices at hand."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from entrec import (
    Density,
    Gaussian,
    GeneralizedNormal,
    Laplace,
    VonMisesFisher,
    er_bound,
    infonce_bound,
    kde_entropy,
    kde_log_density,
    pairwise_logsumexp,
    uniformity,
)
from entrec.losses import AlignUniformLoss, ERLoss, InfoNCELoss, MemoryBankLoss, NTXentLoss
from entrec.pairwise import Backend, Precision, Similarity, backends
from tests.memory import Largest


class Case(NamedTuple):
    """Who computes: a backend on a device, with the number of pairs in a tile where it should be a small one."""

    backend: Backend
    device: str
    precision: Precision
    tile: int | None = None

    @property
    def how(self) -> dict[str, Any]:
        return {"backend": self.backend, "precision": self.precision}

    @property
    def narrow(self) -> bool:
        """Products may be rounded to half precision."""
        return self.device == "cuda" and self.precision == "fast"


class Truth(NamedTuple):
    value: Tensor
    gradients: list[Tensor]
    sizes: list[float]  # the norms that the gradients' errors are measured against
    strength: float  # the largest |s|


ON_CPU = [
    Case("dense", "cpu", "ieee"),
    Case("tiled", "cpu", "ieee", 16**2),
    Case("tiled", "cpu", "fast", 37**2),
    Case("auto", "cpu", "fast", 21**2),
]
ON_CUDA = [
    Case("triton", "cuda", "fast"),
    Case("triton", "cuda", "ieee"),
    Case("tiled", "cuda", "ieee", 37**2),
    Case("tiled", "cuda", "fast"),
    Case("dense", "cuda", "ieee"),
    Case("auto", "cuda", "fast"),
    Case("auto", "cuda", "ieee"),
]
NEEDS_CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def _parameters(cases: list[Case]) -> list[Any]:
    marks: dict[str, list[Any]] = {"cpu": [], "cuda": NEEDS_CUDA}
    return [pytest.param(x, marks=marks[x.device], id="-".join(str(y) for y in x if y is not None)) for x in cases]


def _small_tiles(case: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    if case.tile is not None:
        monkeypatch.setitem(backends._TILE, case.device, case.tile)
    return case


@pytest.fixture(params=_parameters([*ON_CPU, *ON_CUDA]))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    return _small_tiles(request.param, monkeypatch)


@pytest.fixture(params=_parameters(ON_CUDA))
def cuda_case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    return _small_tiles(request.param, monkeypatch)


SIMILARITIES: list[Similarity] = ["dot", "cosine", "sqeuclidean", "l1", ("lp", 0.4), ("lp", 1.5), ("lp", 3.0)]
every_similarity = pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
either_diagonal = pytest.mark.parametrize("exclude_diagonal", [False, True], ids=["all", "others"])


def similarities(a: Tensor, b: Tensor, similarity: Similarity) -> Tensor:
    """The matrix, of vectors already on the sphere for "cosine"."""
    if similarity in ("dot", "cosine"):
        return torch.einsum("...id,...jd->...ij", a, b)
    if similarity == "sqeuclidean" and a.shape[-1] > 3:  # without the differences, which a large matrix has no room for
        squares = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
        return 2 * torch.einsum("...id,...jd->...ij", a, b) - squares
    p: Any = {"sqeuclidean": 2.0, "l1": 1.0}[similarity] if isinstance(similarity, str) else similarity[1]
    difference: Tensor = (a[..., :, None, :] - b[..., None, :, :]).abs()
    zero = difference == 0
    powers: Tensor = difference.masked_fill(zero, 1.0) ** p
    return -powers.masked_fill(zero, 0.0).sum(-1)


def truth(
    a: Tensor, b: Tensor | None, similarity: Similarity, scale: Any, exclude_diagonal: bool, g: Tensor, *more: Tensor
) -> Truth:
    """Values and gradients in a, b (None: a itself) and more, in float64; a cosine's error counts at the unit vectors."""
    points = [x.detach().double().requires_grad_() for x in ((a,) if b is None else (a, b))]
    units = [x / x.norm(dim=-1, keepdim=True) if similarity == "cosine" else x for x in points]
    s = scale * similarities(units[0], units[-1], similarity)
    if exclude_diagonal:
        s = s.masked_fill(torch.eye(s.shape[-2], s.shape[-1], dtype=torch.bool, device=s.device), -math.inf)
    value = s.logsumexp(dim=-1)
    g = g.double()
    gradients = list(torch.autograd.grad(value, [*points, *more], g, retain_graph=True))
    at_units = torch.autograd.grad(value, [*units, *more], g)
    lengths = [x.detach().norm(dim=-1, keepdim=True) if similarity == "cosine" else torch.ones_like(x) for x in points]
    lengths += [torch.ones_like(x) for x in more]
    sizes = [float((x / length).norm()) for x, length in zip(at_units, lengths, strict=True)]
    return Truth(value.detach(), gradients, sizes, float(s.detach().masked_fill(s == -math.inf, 0).abs().max()))


def tolerance(case: Case, strength: float, d: int, dtype: torch.dtype = torch.float32) -> float:
    """What the precisions promise, norm-wise: see `pairwise_logsumexp`. Below 8 dimensions "fast" is only kept sane."""
    if dtype == torch.float64:
        return 1e-11
    rounding = torch.finfo(dtype).eps if dtype.itemsize == 2 else 0.0
    if case.narrow:
        return (2e-3 if d >= 8 else 1e-2) * max(1.0, strength / 10) + rounding
    return 1e-5 + rounding


def agree(
    case: Case,
    a: Tensor,
    b: Tensor | None,
    similarity: Similarity,
    scale: float,
    exclude_diagonal: bool = False,
    g: Tensor | None = None,
    strength: float | None = None,
) -> None:
    """The case's value and gradients are the truth's, for a random row gradient unless one is given."""
    g = torch.randn(a.shape[:-1], device=a.device) if g is None else g
    exact = truth(a, b, similarity, scale, exclude_diagonal, g)
    leaves = [x.detach().requires_grad_() for x in ((a,) if b is None else (a, b))]
    value = pairwise_logsumexp(leaves[0], leaves[-1], similarity, scale, exclude_diagonal, **case.how)
    assert value.shape == a.shape[:-1]
    assert value.dtype == torch.promote_types(torch.promote_types(a.dtype, leaves[-1].dtype), torch.float32)
    allowed = tolerance(case, exact.strength if strength is None else strength, a.shape[-1], value.dtype)
    assert _distance(value, exact.value) <= allowed * max(float(exact.value.norm()), math.sqrt(value.numel()))
    for leaf, x, y, size in zip(
        leaves, torch.autograd.grad(value, leaves, g.to(value.dtype)), exact.gradients, exact.sizes, strict=True
    ):
        assert x.shape == leaf.shape
        assert x.dtype == leaf.dtype
        rounding = torch.finfo(leaf.dtype).eps if leaf.dtype.itemsize == 2 else 0.0
        assert _distance(x, y) <= (allowed + rounding) * max(size, 1e-3)


def _distance(x: Tensor, y: Tensor) -> float:
    return float((x.detach().double() - y.detach()).norm())


def moderate(similarity: Similarity, d: int) -> float:
    """A scale at which Gaussian points in d dimensions have similarities of a few units."""
    if similarity == "cosine":
        return 5.0
    return 0.7 / math.sqrt(d) if similarity == "dot" else 0.7 / d


def spheres(*shape: int, device: str = "cpu") -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, device=device), dim=-1)


def clusters(k: int, d: int, spread: float, device: str = "cpu") -> Tensor:
    """Unit vectors about at most five directions; a spread of zero collapses them onto those."""
    centres = spheres(5, d, device=device)[torch.arange(k, device=device) % 5]
    return torch.nn.functional.normalize(centres + spread * torch.randn(k, d, device=device), dim=-1)


@either_diagonal
def test_many_tiles_round_no_more_than_one(case: Case, exclude_diagonal: bool) -> None:
    a = spheres(1000, 1, device=case.device)  # all similarities are exact, so that nothing else is rounded
    if not case.narrow:
        value = pairwise_logsumexp(a, a, "dot", 100.0, exclude_diagonal, **case.how)
        exact = truth(a, None, "dot", 100.0, exclude_diagonal, torch.ones(1000, device=case.device)).value
        assert (value - exact).abs().max() <= 2 * 2**-18  # float32 has steps of 2^-17 from 64 to 128
    agree(case, a, None, "dot", 100.0, exclude_diagonal, strength=100.0)


SHAPES = [(1, 1, 3), (1, 5, 1), (2, 2, 1), (7, 2, 2), (127, 127, 3), (40, 127, 8), (127, 45, 64), (9, 20, 4096)]


@pytest.mark.parametrize(("k", "m", "d"), SHAPES, ids=str)
@every_similarity
def test_values_and_gradients_agree_with_float64(case: Case, similarity: Similarity, k: int, m: int, d: int) -> None:
    a, b = torch.randn(k, d, device=case.device), torch.randn(m, d, device=case.device)
    agree(case, a, b, similarity, moderate(similarity, d), exclude_diagonal=False)
    if m > 1:
        agree(case, a, b, similarity, moderate(similarity, d), exclude_diagonal=True)


@either_diagonal
@pytest.mark.parametrize("similarity", ["dot", "cosine", "sqeuclidean"])
def test_a_thousand_rows_agree_with_float64(case: Case, similarity: Similarity, exclude_diagonal: bool) -> None:
    a, b = torch.randn(1000, 8, device=case.device), torch.randn(513, 8, device=case.device)
    agree(case, a, b, similarity, moderate(similarity, 8), exclude_diagonal)
    agree(case, a, None, similarity, moderate(similarity, 8), exclude_diagonal)


@pytest.mark.parametrize(("k", "m", "d"), [(2, 2, 1), (50, 31, 3), (31, 50, 20)], ids=str)
@every_similarity
def test_float64_stays_float64(case: Case, similarity: Similarity, k: int, m: int, d: int) -> None:
    if case.backend == "triton":
        pytest.skip("the kernels are for float32 and below")
    a, b = (torch.randn(n, d, device=case.device, dtype=torch.float64) for n in (k, m))
    for exclude_diagonal in (False, True):
        agree(case, a, b, similarity, moderate(similarity, d), exclude_diagonal)
        agree(case, a, None, similarity, moderate(similarity, d), exclude_diagonal)


@either_diagonal
@pytest.mark.parametrize(("k", "d"), [(2, 2), (16, 8), (17, 1), (127, 20)], ids=str)
@every_similarity
def test_one_set_agrees_with_float64_and_with_its_copy(
    case: Case, similarity: Similarity, k: int, d: int, exclude_diagonal: bool
) -> None:
    a, g = torch.randn(k, d, device=case.device), torch.randn(k, device=case.device)
    scale = moderate(similarity, d)
    agree(case, a, None, similarity, scale, exclude_diagonal, g)
    one, x, y = (a.clone().requires_grad_() for _ in range(3))
    of_one = pairwise_logsumexp(one, one, similarity, scale, exclude_diagonal, **case.how)
    of_two = pairwise_logsumexp(x, y, similarity, scale, exclude_diagonal, **case.how)
    exact = truth(a, None, similarity, scale, exclude_diagonal, g)
    allowed = 2 * tolerance(case, exact.strength, d)
    assert _distance(of_one, of_two.double()) <= allowed * max(float(exact.value.norm()), math.sqrt(k))
    (gradient,) = torch.autograd.grad(of_one, one, g)
    both = torch.autograd.grad(of_two, (x, y), g)
    assert _distance(gradient, both[0].double() + both[1].double()) <= allowed * max(
        exact.sizes[0], float(both[0].norm()), 1e-3
    )


def test_the_same_storage_in_another_tensor_is_no_other_problem(case: Case) -> None:
    a = spheres(50, 8, device=case.device).requires_grad_()
    view = a.view(50, 8)
    value = pairwise_logsumexp(a, view, "dot", 5.0, **case.how)
    exact = truth(a, None, "dot", 5.0, False, torch.ones(50, device=case.device))
    assert _distance(value, exact.value) <= tolerance(case, 5.0, 8) * float(exact.value.norm())
    (gradient,) = torch.autograd.grad(value.sum(), a)
    assert _distance(gradient, exact.gradients[0]) <= tolerance(case, 5.0, 8) * exact.sizes[0]


@either_diagonal
@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
@every_similarity
def test_leading_dimensions_are_several_problems(
    case: Case, similarity: Similarity, one_set: bool, exclude_diagonal: bool
) -> None:
    a, b = torch.randn(2, 3, 33, 8, device=case.device), torch.randn(2, 3, 20, 8, device=case.device)
    agree(case, a, None if one_set else b, similarity, moderate(similarity, 8), exclude_diagonal)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "strided rows": lambda x: x.repeat_interleave(2, dim=-2)[..., ::2, :],
    "strided columns": lambda x: x.repeat_interleave(3, dim=-1)[..., 1::3],
    "offset": lambda x: torch.nn.functional.pad(x, (3, 2, 1, 0))[..., 1:, 3:-2],
    "permuted batch": lambda x: x.movedim(0, -2).contiguous().movedim(-2, 0),
    "expanded batch": lambda x: x[:1].expand(3, -1, -1),
    "expanded rows": lambda x: x[:, :1].expand(-1, 45, -1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("similarity", ["dot", "cosine", "sqeuclidean", "l1", ("lp", 1.5)], ids=str)
def test_any_memory_layout_will_do(case: Case, similarity: Similarity, layout: str) -> None:
    a, b = torch.randn(3, 45, 8, device=case.device), torch.randn(3, 20, 8, device=case.device)
    scale, g = moderate(similarity, 8), torch.randn(45, 3, device=case.device).mT
    laid_out = LAYOUTS[layout](a)
    agree(case, laid_out, b, similarity, scale, g=g)
    agree(case, laid_out, None, similarity, scale, exclude_diagonal=True, g=g)
    if layout != "expanded rows":
        agree(case, a, LAYOUTS[layout](b), similarity, scale, exclude_diagonal=True, g=g)


def test_a_row_gradient_may_have_any_layout(case: Case) -> None:
    a, b = spheres(40, 8, device=case.device), spheres(20, 8, device=case.device)
    wide = torch.randn(40, 3, device=case.device)
    for g in (wide[:, 1], torch.tensor(0.3, device=case.device).expand(40), wide.flatten()[::3]):
        agree(case, a, b, "dot", 5.0, g=g)
        agree(case, a, None, "dot", 5.0, g=g)


@pytest.mark.parametrize("wanted", ["a", "b"])
@pytest.mark.parametrize("similarity", ["dot", "cosine", "sqeuclidean", "l1", ("lp", 0.4), ("lp", 1.5)], ids=str)
def test_one_of_two_sets_may_be_without_gradient(case: Case, similarity: Similarity, wanted: str) -> None:
    a, b, g = (torch.randn(*shape, device=case.device) for shape in ((40, 8), (20, 8), (40,)))
    exact = truth(a, b, similarity, moderate(similarity, 8), False, g)
    leaf, n = (a, 0) if wanted == "a" else (b, 1)
    leaf.requires_grad_()
    value = pairwise_logsumexp(a, b, similarity, moderate(similarity, 8), **case.how)
    (gradient,) = torch.autograd.grad(value, leaf, g)
    assert _distance(gradient, exact.gradients[n]) <= tolerance(case, exact.strength, 8) * exact.sizes[n]


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float16), (torch.bfloat16, torch.bfloat16)], ids=str)
@every_similarity
def test_half_precision_is_computed_in_float32(
    case: Case, similarity: Similarity, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    a, b = torch.randn(40, 16, device=case.device).to(dtypes[0]), torch.randn(25, 16, device=case.device).to(dtypes[1])
    agree(case, a, b, similarity, moderate(similarity, 16))
    agree(case, a, None, similarity, moderate(similarity, 16), exclude_diagonal=True)


def test_mixed_dtypes_are_computed_in_the_wider_and_each_gets_its_own_gradient(case: Case) -> None:
    a, b = torch.randn(40, 16, device=case.device), torch.randn(25, 16, device=case.device)
    for x, y in ((a.half(), b), (a, b.bfloat16()), (a.half(), b.bfloat16())):
        agree(case, x, y, "dot", 0.2)
    if case.backend != "triton":
        agree(case, a.half(), b.double(), "sqeuclidean", 0.1)


@either_diagonal
@pytest.mark.parametrize("temperature", [0.1, 0.07, 0.01])
@pytest.mark.parametrize("data", ["spread", "clustered", "tight", "collapsed"])
@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
def test_low_temperatures_on_the_sphere_keep_the_promised_precision(
    case: Case, one_set: bool, data: str, temperature: float, exclude_diagonal: bool
) -> None:
    spread = {"clustered": 0.3, "tight": 1e-2, "collapsed": 0.0}
    a, b = (
        spheres(127, 32, device=case.device) if data == "spread" else clusters(127, 32, spread[data], case.device) for _ in "ab"
    )
    agree(case, a, None if one_set else b, "dot", 1 / temperature, exclude_diagonal, strength=1 / temperature)
    # Of any length, as a head gives them: no similarity exceeds the scale there either.
    lengths = 10 ** (4 * torch.rand(127, 1, device=case.device) - 2)
    agree(case, a * lengths, None if one_set else b, "cosine", 1 / temperature, exclude_diagonal, strength=1 / temperature)


@pytest.mark.parametrize("scale", [39.0, 41.0, 300.0, 1e4])
def test_opposite_points_at_a_high_scale_are_neither_lost_nor_infinite(case: Case, scale: float) -> None:
    """Of two opposite points each sees only the other, at the similarity -scale, where exp vanishes in float32."""
    a = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], device=case.device, requires_grad=True)
    for x, similarity in ((a, "cosine"), (a.detach().clone().requires_grad_(), "dot")):
        value = pairwise_logsumexp(x, x, similarity, scale, exclude_diagonal=True, **case.how)  # type: ignore[arg-type]
        rounding = 5e-4 if case.narrow else 1e-5  # of the points, in half precision: only the gradient is promised better
        assert value.tolist() == pytest.approx([-scale, -scale], rel=rounding)
        (gradient,) = torch.autograd.grad(value, x, torch.tensor([1.0, 2.0], device=case.device))
        expected = torch.zeros(2, 2) if similarity == "cosine" else 3 * scale * torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
        torch.testing.assert_close(gradient.cpu(), expected, rtol=1e-5, atol=1e-3)


def test_similarities_far_apart_neither_overflow_nor_vanish(case: Case) -> None:
    if case.narrow:
        pytest.skip("half precision has no such numbers")
    a = torch.tensor([[300.0, 1.0], [-300.0, 2.0], [100.0, 0.5]], device=case.device)
    agree(case, a, None, "dot", 1.0)
    agree(case, a, None, "sqeuclidean", 1.0, exclude_diagonal=True)
    agree(case, a, None, "l1", 1.0, exclude_diagonal=True)


@pytest.mark.parametrize("data", ["clustered", "collapsed"])
@pytest.mark.parametrize("similarity", ["sqeuclidean", "l1", ("lp", 0.4), ("lp", 1.5)], ids=str)
def test_close_and_equal_points_far_from_the_origin_keep_their_digits(case: Case, similarity: Similarity, data: str) -> None:
    """Distances of 0.05 at 100 from the origin: squares of coordinates would drown them."""
    if case.narrow:
        pytest.skip("the precision of distances is promised for ieee alone")
    a = 100 + (0.05 * torch.randn(60, 8, device=case.device) if data == "clustered" else torch.zeros(60, 8, device=case.device))
    agree(case, a, None, similarity, 5.0)
    agree(case, a, None, similarity, 5.0, exclude_diagonal=True)


@either_diagonal
@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
@every_similarity
def test_a_learnt_scale_has_its_gradient(case: Case, similarity: Similarity, one_set: bool, exclude_diagonal: bool) -> None:
    a, b, g = (torch.randn(*shape, device=case.device) for shape in ((45, 8), (70, 8), (45,)))
    scale = torch.tensor(moderate(similarity, 8), device=case.device)
    exact_scale = scale.double().requires_grad_()
    exact = truth(a, None if one_set else b, similarity, exact_scale, exclude_diagonal, g, exact_scale)
    for learnt in (scale.clone().requires_grad_(), scale.reshape(1, 1).clone().requires_grad_()):
        leaves = [x.clone().requires_grad_() for x in ((a,) if one_set else (a, b))]
        if case.backend == "triton" and similarity == ("lp", 0.4):
            with pytest.raises(ValueError, match="needs a scale that is a number"):
                pairwise_logsumexp(leaves[0], leaves[-1], similarity, learnt, exclude_diagonal, **case.how)
            continue
        value = pairwise_logsumexp(leaves[0], leaves[-1], similarity, learnt, exclude_diagonal, **case.how)
        allowed = tolerance(case, exact.strength, 8)
        assert _distance(value, exact.value) <= allowed * max(float(exact.value.norm()), math.sqrt(45))
        *found, in_scale = torch.autograd.grad(value, [*leaves, learnt], g)
        for x, y, size in zip(found, exact.gradients, exact.sizes, strict=False):
            assert _distance(x, y) <= allowed * size
        assert in_scale.shape == learnt.shape
        # A random row gradient cancels in the sum over rows: its parts are the measure.
        parts = float((g.double() * exact.value).norm()) / float(scale)
        assert abs(float(in_scale) - float(exact.gradients[-1])) <= allowed * (parts + abs(float(exact.gradients[-1])))


@either_diagonal
@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
@pytest.mark.parametrize("p", [0.4, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("learnt_scale", [False, True])
def test_a_learnt_exponent_has_its_gradient(
    case: Case, p: float, learnt_scale: bool, one_set: bool, exclude_diagonal: bool
) -> None:
    if case.backend == "triton":
        pytest.skip("the kernels take a number")
    a, b, g = (torch.randn(*shape, device=case.device) for shape in ((45, 8), (70, 8), (45,)))
    parameters = [torch.tensor(x, device=case.device) for x in ((p, 0.2) if learnt_scale else (p,))]
    exact_ones = [x.double().requires_grad_() for x in parameters]
    exact_scale: Any = exact_ones[1] if learnt_scale else 0.2
    exact = truth(a, None if one_set else b, ("lp", exact_ones[0]), exact_scale, exclude_diagonal, g, *exact_ones)
    leaves = [x.clone().requires_grad_() for x in ((a,) if one_set else (a, b))]
    learnt = [x.requires_grad_() for x in parameters]
    scale: Any = learnt[1] if learnt_scale else 0.2
    value = pairwise_logsumexp(leaves[0], leaves[-1], ("lp", learnt[0]), scale, exclude_diagonal, **case.how)
    allowed = tolerance(case, exact.strength, 8)
    assert _distance(value, exact.value) <= allowed * max(float(exact.value.norm()), math.sqrt(45))
    found = torch.autograd.grad(value, [*leaves, *learnt], g)
    for x, y, size in zip(found[: len(leaves)], exact.gradients, exact.sizes, strict=False):
        assert _distance(x, y) <= allowed * size
    for x, y in zip(found[len(leaves) :], exact.gradients[len(leaves) :], strict=True):
        parts = 10 * float((g.double() * exact.value).norm())
        assert abs(float(x) - float(y)) <= allowed * (parts + abs(float(y)))


def test_a_learnt_exponent_may_be_all_that_is_learnt(case: Case) -> None:
    if case.backend == "triton":
        pytest.skip("the kernels take a number")
    a, g = torch.randn(45, 8, device=case.device), torch.randn(45, device=case.device)
    p = torch.tensor(1.5, device=case.device, requires_grad=True)
    exact_p = p.detach().double().requires_grad_()
    exact = truth(a, None, ("lp", exact_p), 0.2, True, g, exact_p)
    (gradient,) = torch.autograd.grad(pairwise_logsumexp(a, a, ("lp", p), 0.2, True, **case.how), p, g)
    assert float(gradient) == pytest.approx(float(exact.gradients[-1]), rel=10 * tolerance(case, exact.strength, 8))


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("estimator", ["joe", "plugin"])
@pytest.mark.parametrize("kappa", [1.0, 10.0, 100.0])
def test_the_entropys_own_row_gradients_keep_the_promised_precision(
    case: Case, kappa: float, estimator: Any, leave_one_out: bool
) -> None:
    """The plug-in weighs rows by their densities, which at a high kappa differ by many orders of magnitude."""
    z = torch.cat([spheres(90, 16, device=case.device), clusters(60, 16, 0.1, case.device)])
    exact = z.double().requires_grad_()
    s = kappa * exact @ exact.mT
    if leave_one_out:
        s = s.masked_fill(torch.eye(150, dtype=torch.bool, device=s.device), -math.inf)
    log_p = s.logsumexp(dim=1) - math.log(149 if leave_one_out else 150)
    entropy = -log_p.mean() if estimator == "joe" else -(torch.softmax(log_p, dim=0) * log_p).sum()
    (at_units,) = torch.autograd.grad(entropy, exact)
    tangential = at_units - (at_units * exact.detach()).sum(dim=1, keepdim=True) * exact.detach()
    leaf = z.clone().requires_grad_()
    density = VonMisesFisher(kappa)
    value = kde_entropy(leaf, density, estimator, leave_one_out, **case.how)
    assert value.item() + float(density.log_normalizer(16)) == pytest.approx(
        entropy.item(), abs=tolerance(case, kappa, 16) * kappa
    )
    (gradient,) = torch.autograd.grad(value, leaf)
    assert _distance(gradient, tangential) <= tolerance(case, kappa, 16) * float(at_units.norm())


@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
@either_diagonal
@every_similarity
def test_gradcheck_in_float64_over_several_tiles(
    case: Case, similarity: Similarity, exclude_diagonal: bool, one_set: bool
) -> None:
    if case.backend == "triton":
        pytest.skip("the kernels are for float32 and below")
    a, b = (torch.randn(n, 2, dtype=torch.float64, device=case.device, requires_grad=True) for n in (18, 20))
    scale = torch.tensor(0.7, dtype=torch.float64, device=case.device, requires_grad=True)
    learnt = [torch.tensor(similarity[1], dtype=torch.float64, device=case.device)] if isinstance(similarity, tuple) else []
    inputs = [a, *([] if one_set else [b]), scale, *(p.requires_grad_() for p in learnt)]

    def function(x: Tensor, *rest: Tensor) -> Tensor:
        y, s, *p = (x, *rest) if one_set else rest
        chosen: Similarity = ("lp", p[0]) if p else similarity
        return pairwise_logsumexp(x, y, chosen, s, exclude_diagonal, **case.how)

    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
@pytest.mark.parametrize("similarity", ["dot", "cosine", "l1", ("lp", 1.5)], ids=str)
def test_a_second_derivative_is_refused_in_words(case: Case, similarity: Similarity, one_set: bool) -> None:
    a, b = (torch.randn(20, 8, device=case.device, requires_grad=True) for _ in range(2))
    value = pairwise_logsumexp(a, a if one_set else b, similarity, 0.5, **case.how)
    for loss in (value.square().sum(), value.mean()):  # whose incoming gradient depends on the points, or does not
        (gradient,) = torch.autograd.grad(loss, a, create_graph=True, retain_graph=True)
        with pytest.raises(RuntimeError, match="second derivative"):
            gradient.sum().backward(retain_graph=True)
    (gradient,) = torch.autograd.grad(value.square().sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@every_similarity
def test_autocast_changes_neither_value_nor_gradient(
    case: Case, similarity: Similarity, dtype: torch.dtype, one_set: bool
) -> None:
    a, b = (torch.randn(40, 8, device=case.device).to(dtype).requires_grad_() for _ in range(2))
    g = torch.randn(40, device=case.device)
    results = []
    for enabled in (False, True):
        with torch.autocast(case.device, dtype=torch.bfloat16, enabled=enabled):
            value = pairwise_logsumexp(a, a if one_set else b, similarity, moderate(similarity, 8), **case.how)
            inside = torch.autograd.grad(value, [a] if one_set else [a, b], g, retain_graph=True)
        outside = torch.autograd.grad(value, [a] if one_set else [a, b], g)
        assert value.dtype == torch.float32
        results.append((value.detach(), *inside, *outside))
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6 if case.device == "cuda" else 0, atol=1e-6 if case.device == "cuda" else 0)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


COMPILED: dict[str, Callable[[Tensor, Tensor, Tensor, Case], Tensor]] = {
    "dot": lambda a, b, _, case: pairwise_logsumexp(a, b, "dot", 0.3, **case.how),
    "one set": lambda a, _, __, case: pairwise_logsumexp(a, a, "cosine", 5.0, exclude_diagonal=True, **case.how),
    "sqeuclidean": lambda a, b, _, case: pairwise_logsumexp(a, b, "sqeuclidean", 0.1, exclude_diagonal=True, **case.how),
    "learnt scale": lambda a, b, c, case: pairwise_logsumexp(a, b, "l1", c, **case.how),
    "learnt exponent": lambda a, _, c, case: pairwise_logsumexp(a, a, ("lp", c), c, **case.how),
    "batched and transposed": lambda a, b, _, case: pairwise_logsumexp(
        torch.stack([a, 2 * a]).mT.contiguous().mT, torch.stack([b, b]), "dot", 0.3, **case.how
    ),
}


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.usefixtures("_fresh_compiler")
def test_compiled_code_has_no_break_and_the_same_numbers_at_any_batch_size(case: Case, name: str) -> None:
    if case.device == "cpu" and case.tile != 16**2 and name != "one set":
        pytest.skip("the tracing is the same for all backends")
    if case.backend == "triton" and name == "learnt exponent":
        pytest.skip("the kernels take a number")
    counter = CompileCounterWithBackend("aot_eager")

    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return COMPILED[name](a, b, c, case).square().mean()

    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for k in (40, 33, 18):
        inputs = [torch.randn(*shape, device=case.device) for shape in ((k, 8), (k + 3, 8))]
        inputs.append(torch.tensor(0.6, device=case.device))
        results = []
        for f in (function, compiled):
            leaves = [x.clone().requires_grad_() for x in inputs]
            value = f(*leaves)
            value.backward()
            results.append([value.detach(), *(x.grad for x in leaves if x.grad is not None)])
        for x, y in zip(*results, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-4 if case.narrow else 1e-5, atol=1e-6)
    assert counter.frame_count <= 2, "the batch size is a constant of the graph"


@pytest.mark.parametrize("one_set", [True, False], ids=["one set", "two sets"])
@every_similarity
def test_functional_gradients_work(case: Case, similarity: Similarity, one_set: bool) -> None:
    a, b, g = (torch.randn(*shape, device=case.device) for shape in ((20, 8), (33, 8), (20,)))
    exact = truth(a, None if one_set else b, similarity, moderate(similarity, 8), False, g)

    def function(x: Tensor) -> Tensor:
        return (g * pairwise_logsumexp(x, x if one_set else b, similarity, moderate(similarity, 8), **case.how)).sum()

    gradient = torch.func.grad(function)(a)
    assert _distance(gradient, exact.gradients[0]) <= tolerance(case, exact.strength, 8) * exact.sizes[0]


@every_similarity
def test_calling_twice_gives_the_same_bits(case: Case, similarity: Similarity) -> None:
    if case.device == "cuda" and case.backend in ("triton", "auto"):
        pytest.skip("kernels may add in any order")
    a, g = torch.randn(100, 8, device=case.device, requires_grad=True), torch.randn(100, device=case.device)
    results = []
    for _ in range(2):
        value = pairwise_logsumexp(a, a, similarity, moderate(similarity, 8), **case.how)
        results.append((value, *torch.autograd.grad(value, a, g)))
    for x, y in zip(*results, strict=True):
        assert torch.equal(x, y)


def test_inputs_and_row_gradient_are_left_alone(case: Case) -> None:
    for similarity in SIMILARITIES:
        tensors = [torch.randn(*shape, device=case.device) for shape in ((40, 8), (20, 8), (40,))]
        before = [x.clone() for x in tensors]
        a, b, g = tensors
        value = pairwise_logsumexp(a.requires_grad_(), b.requires_grad_(), similarity, moderate(similarity, 8), **case.how)
        kept = value.detach().clone()
        torch.autograd.grad(value, (a, b), g, retain_graph=True)
        torch.autograd.grad(value, (a, b), g)
        assert torch.equal(value.detach(), kept)
        assert all(torch.equal(x.detach(), y) for x, y in zip(tensors, before, strict=True))


@pytest.mark.parametrize("device", _parameters([Case("triton", "cpu", "fast"), Case("triton", "cuda", "fast")]))
def test_kernels_that_cannot_serve_are_refused_by_name_and_auto_chooses_others(device: Case) -> None:
    a, p = torch.randn(20, 8, device=device.device), torch.tensor(1.5, device=device.device)
    of_float64, learnt = (a.double(), "dot"), (a, ("lp", p))
    calls: list[tuple[Tensor, Any]] = [of_float64, learnt] if device.device == "cuda" else [of_float64, learnt, (a, "dot")]
    for x, similarity in calls:
        with pytest.raises(ValueError, match="backend='triton' needs"):
            pairwise_logsumexp(x, x, similarity, backend="triton")
        chosen = pairwise_logsumexp(x, x, similarity, backend="auto", precision="ieee")
        torch.testing.assert_close(chosen, pairwise_logsumexp(x, x, similarity, backend="dense", precision="ieee"))


K, D, TILE = 450, 2, 40**2
LINEAR_IN_K = K * K // 15  # far more than k x d and than a tile, far less than a matrix of pairs


def _density_functions(density: Density) -> dict[str, Callable[..., Tensor]]:
    return {
        f"kde_entropy {density}": lambda z1, z2, **how: kde_entropy(z1, density, "plugin", True, **how),
        f"kde_log_density {density}": lambda z1, z2, **how: kde_log_density(z1, density, z2, **how).sum(),
        f"er_bound {density}": lambda z1, z2, **how: er_bound(z1, z2, density, **how).value,
        f"infonce_bound {density}": lambda z1, z2, **how: infonce_bound(z1, z2, density, **how),
        f"ERLoss {density}": lambda z1, z2, **how: ERLoss(density, leave_one_out=True, **how)(z1, z2, z1 + z2),
    }


CALLERS: dict[str, Callable[..., Tensor]] = {
    **{
        f"pairwise {similarity}": (
            lambda z1, z2, similarity=similarity, **how: (
                pairwise_logsumexp(z1, z2, similarity, 0.3, True, **how)
                + pairwise_logsumexp(z1, z1, similarity, 0.3, True, **how)
            ).sum()
        )
        for similarity in (*SIMILARITIES, ("lp", torch.tensor(1.3)))
    },
    **_density_functions(VonMisesFisher(10.0)),
    **_density_functions(VonMisesFisher(torch.tensor(100.0))),
    **_density_functions(Gaussian(0.7)),
    **_density_functions(Laplace(torch.tensor(1.3))),
    "ERLoss GeneralizedNormal": lambda z1, z2, **how: ERLoss(GeneralizedNormal(torch.tensor(1.5), 0.8), **how)(z1, z2),
    "uniformity": lambda z1, z2, **how: uniformity(z1, **how) + uniformity(z2, **how),
    "NTXentLoss": lambda z1, z2, **how: NTXentLoss(**how)(z1, z2),
    "NTXentLoss at 0.01": lambda z1, z2, **how: NTXentLoss(0.01, **how)(z1, z2),
    "InfoNCELoss": lambda z1, z2, **how: InfoNCELoss(**how)(z1, z2, z1 - z2),
    "MemoryBankLoss": lambda z1, z2, **how: MemoryBankLoss(**how)(z1, z2, z1.detach() + 1),
    "AlignUniformLoss": lambda z1, z2, **how: AlignUniformLoss(**how)(z1, z2),
}


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@pytest.mark.parametrize("caller", CALLERS)
def test_no_matrix_of_all_pairs_is_ever_held(monkeypatch: pytest.MonkeyPatch, caller: str, backend: Backend) -> None:
    monkeypatch.setitem(backends._TILE, "cpu", TILE)
    z1, z2 = (torch.randn(K, D, requires_grad=True) for _ in range(2))
    with Largest() as forward:
        value = CALLERS[caller](z1, z2, backend=backend)
    with Largest() as backward:
        value.backward()
    assert K * D <= forward.elements <= LINEAR_IN_K
    assert K * D <= backward.elements <= LINEAR_IN_K


def test_what_watches_the_memory_sees_a_matrix() -> None:
    z1, z2 = (torch.randn(K, D, requires_grad=True) for _ in range(2))
    with Largest() as forward:
        value = CALLERS["NTXentLoss"](z1, z2, backend="dense")
    with Largest() as backward:
        value.backward()
    assert min(forward.elements, backward.elements) >= 4 * K * K


def test_memory_grows_with_rows_and_not_with_pairs_where_the_tile_is_the_default() -> None:
    z = torch.randn(3000, 2, requires_grad=True)
    with Largest() as watch:
        pairwise_logsumexp(z, z, "cosine", 10.0).sum().backward()
    assert watch.elements <= 3000 * 3000 // 8


@pytest.mark.parametrize("backend", ["triton", "auto"])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_peak_memory_on_the_gpu_is_linear_in_the_rows(backend: Backend) -> None:
    k, d = 16384, 128
    z1, z2 = (torch.randn(k, d, device="cuda", requires_grad=True) for _ in range(2))
    loss = ERLoss(VonMisesFisher(10.0), estimator="joe", backend=backend)
    for caller in (loss, NTXentLoss(backend=backend), InfoNCELoss(backend=backend), AlignUniformLoss(backend=backend)):
        caller(z1[:512], z2[:512]).backward()
        z1.grad = z2.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        caller(z1, z2).backward()
        grown = torch.cuda.max_memory_allocated() - before
        assert grown <= 200e6, f"{caller}: {grown / 1e6:.0f} MB, where one matrix of float32 is {4e-6 * k * k:.0f} MB"
        z1.grad = z2.grad = None


DIMENSIONS = [1, 8, 64, 128, 200, 256, 300, 1024, 4096]


@either_diagonal
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("k", [1, 2, 127, 1000, 4097])
def test_one_set_of_any_size_on_the_gpu(cuda_case: Case, k: int, d: int, exclude_diagonal: bool) -> None:
    if exclude_diagonal and k == 1:
        pytest.skip("leaves no pair")
    a = spheres(k, d, device="cuda")
    agree(cuda_case, a, None, "dot", 10.0, exclude_diagonal, strength=10.0)
    agree(cuda_case, 3 * a, None, "cosine", 10.0, exclude_diagonal, strength=10.0)
    agree(cuda_case, a, None, "dot", 100.0, exclude_diagonal, strength=100.0)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize(("k", "m"), [(1, 4097), (4097, 1), (2, 127), (1000, 127), (127, 4097), (4097, 1000)], ids=str)
def test_two_sets_of_any_size_on_the_gpu(cuda_case: Case, k: int, m: int, d: int) -> None:
    a, b = spheres(k, d, device="cuda"), spheres(m, d, device="cuda")
    agree(cuda_case, a, b, "dot", 10.0, strength=10.0)
    agree(cuda_case, 3 * a, b, "cosine", 10.0, exclude_diagonal=m > 1, strength=10.0)


@pytest.mark.parametrize("d", [8, 128, 300])
@pytest.mark.parametrize("similarity", ["dot", "cosine", "sqeuclidean", "l1", ("lp", 1.5)], ids=str)
def test_every_similarity_of_many_points_on_the_gpu(cuda_case: Case, similarity: Similarity, d: int) -> None:
    k = 4097 if similarity in ("dot", "cosine", "sqeuclidean") else 300  # the reference holds all differences of the others
    a, b = torch.randn(k, d, device="cuda"), torch.randn(k // 2, d, device="cuda")
    agree(cuda_case, a, None, similarity, moderate(similarity, d), exclude_diagonal=True)
    agree(cuda_case, a, b, similarity, moderate(similarity, d))


@pytest.mark.parametrize("data", ["spread", "clustered", "tight", "collapsed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_many_points_of_any_kind_on_the_gpu(cuda_case: Case, data: str, dtype: torch.dtype) -> None:
    spread = {"clustered": 0.3, "tight": 1e-2, "collapsed": 0.0}
    z = spheres(4097, 128, device="cuda") if data == "spread" else clusters(4097, 128, spread[data], "cuda")
    z = z.to(dtype)
    for scale in (1.0, 10.0, 100.0):
        # After the rounding to half precision the vectors are no longer quite unit ones: "cosine" makes them so.
        agree(cuda_case, z, None, "cosine", scale, strength=scale)
        agree(cuda_case, z.mT.contiguous().mT, None, "cosine", scale, exclude_diagonal=True, strength=scale)
        agree(cuda_case, z[:3000].view(3, 1000, 128), z[1000:4000].view(3, 1000, 128), "cosine", scale, strength=scale)
