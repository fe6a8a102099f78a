"""The contrastive losses against their formulas, written densely in float64, and against closed forms."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from entrec import VonMisesFisher, alignment, infonce_bound, uniformity
from entrec.losses import AlignUniformLoss, InfoNCELoss, MemoryBankLoss, NTXentLoss

Temperature = float | Tensor
Loss = Callable[..., Tensor]


def unit(z: Tensor) -> Tensor:
    length: Tensor = z.norm(dim=-1, keepdim=True)
    return z / length


def nt_xent(z1: Tensor, z2: Tensor, temperature: Temperature) -> Tensor:
    z = unit(torch.cat([z1, z2]))
    k = len(z1)
    logits = (z @ z.T / temperature).masked_fill(torch.eye(2 * k, dtype=torch.bool), -math.inf)
    return functional.cross_entropy(logits, torch.arange(2 * k).roll(k))


def info_nce(*views: Tensor, temperature: Temperature) -> Tensor:
    k, v = len(views[0]), len(views)
    losses = [
        functional.cross_entropy(unit(views[s]) @ unit(views[t]).T / temperature, torch.arange(k))
        for s in range(v)
        for t in range(v)
        if s != t
    ]
    return torch.stack(losses).mean()


def moco(queries: Tensor, keys: Tensor, bank: Tensor, temperature: Temperature) -> Tensor:
    positives = (unit(queries) * unit(keys)).sum(dim=1, keepdim=True)
    logits = torch.cat([positives, unit(queries) @ unit(bank).T], dim=1) / temperature
    return functional.cross_entropy(logits, torch.zeros(len(queries), dtype=torch.long))


def instance_discrimination(queries: Tensor, bank: Tensor, rows: Tensor, temperature: Temperature) -> Tensor:
    return functional.cross_entropy(unit(queries) @ unit(bank).T / temperature, rows)


def align_uniform(z1: Tensor, z2: Tensor, alpha: float, t: float, align_weight: float, uniform_weight: float) -> Tensor:
    u1, u2 = unit(z1), unit(z2)
    align: Tensor = (u1 - u2).norm(dim=1).pow(alpha).mean()
    uniform = [torch.pdist(u).pow(2).mul(-t).exp().mean().log() for u in (u1, u2)]
    return align_weight * align + uniform_weight * (uniform[0] + uniform[1]) / 2


BANK = torch.randn(11, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

# By name: the loss, its formula, and which of its views have a gradient.
OF_VIEWS: dict[str, tuple[Loss, Loss, list[bool]]] = {
    "NTXentLoss": (NTXentLoss(0.2), lambda z1, z2: nt_xent(z1, z2, 0.2), [True, True]),
    "NTXentLoss at 0.01": (NTXentLoss(0.01), lambda z1, z2: nt_xent(z1, z2, 0.01), [True, True]),
    "InfoNCELoss": (InfoNCELoss(0.2), lambda *z: info_nce(*z, temperature=0.2), [True, True]),
    "InfoNCELoss of 3": (InfoNCELoss(0.05), lambda *z: info_nce(*z, temperature=0.05), [True, True, True]),
    "MemoryBankLoss": (
        lambda q, k: MemoryBankLoss(0.2)(q, k, BANK.to(q.dtype)),
        lambda q, k: moco(q, k, BANK, temperature=0.2),
        [True, False],
    ),
    "AlignUniformLoss": (AlignUniformLoss(), lambda z1, z2: align_uniform(z1, z2, 2.0, 2.0, 1.0, 1.0), [True, True]),
    "AlignUniformLoss(1.5, 3, 0.5, 2)": (
        AlignUniformLoss(1.5, 3.0, 0.5, 2.0),
        lambda z1, z2: align_uniform(z1, z2, 1.5, 3.0, 0.5, 2.0),
        [True, True],
    ),
}
every_loss = pytest.mark.parametrize("name", OF_VIEWS)


def doubles(v: int, k: int = 7, d: int = 5) -> list[Tensor]:
    return [torch.randn(k, d, dtype=torch.float64) for _ in range(v)]


def value_and_gradients(loss: Loss, *views: Tensor) -> list[Tensor]:
    leaves = [z.detach().clone().requires_grad_() for z in views]
    value = loss(*leaves)
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    return [value.detach(), *(torch.zeros_like(z) if g is None else g for z, g in zip(leaves, gradients, strict=True))]


def norm_wise(x: Tensor, y: Tensor) -> float:
    return float((x.double() - y).norm()) / max(float(y.norm()), 1e-12)


@every_loss
@pytest.mark.parametrize("k", [2, 7, 40])
def test_value_and_gradients_are_those_of_the_formula(name: str, k: int) -> None:
    loss, formula, has_gradient = OF_VIEWS[name]
    z = doubles(len(has_gradient), k)
    for x, y, wanted in zip(
        value_and_gradients(loss, *z), value_and_gradients(formula, *z), [True, *has_gradient], strict=True
    ):
        torch.testing.assert_close(x, y if wanted else torch.zeros_like(y), rtol=1e-9, atol=1e-11)


@every_loss
def test_float32_is_within_a_hundred_thousandth(name: str) -> None:
    loss, formula, has_gradient = OF_VIEWS[name]
    z = doubles(len(has_gradient), 40)
    exact = value_and_gradients(formula, *(x.float().double() for x in z))
    for x, y, wanted in zip(value_and_gradients(loss, *(x.float() for x in z)), exact, [True, *has_gradient], strict=True):
        assert x.dtype == torch.float32
        if wanted:
            assert norm_wise(x, y) <= 1e-5 * (10 if "0.01" in name else 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_loss
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    loss, formula, has_gradient = OF_VIEWS[name]
    z = [x.to(dtype) for x in doubles(len(has_gradient), 40)]
    exact = value_and_gradients(formula, *(x.double() for x in z))
    rounding = torch.finfo(dtype).eps
    with_bank = name == "MemoryBankLoss"  # which is rounded to half precision as well
    found = value_and_gradients(loss, *z)
    assert found[0].dtype == torch.float32
    assert found[0].item() == pytest.approx(exact[0].item(), rel=4 * rounding if with_bank else 1e-4)
    for x, y, wanted in zip(found[1:], exact[1:], has_gradient, strict=True):
        assert x.dtype == dtype
        assert torch.isfinite(x).all()
        if wanted:
            assert norm_wise(x, y) <= rounding * (8 if with_bank else 1) + 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("data", ["spread", "equal views", "opposite views", "collapsed"])
def test_a_temperature_of_a_hundredth_overflows_nowhere(data: str, dtype: torch.dtype) -> None:
    """exp(1 / 0.01) is infinite in float32 (lightning-bolts #811)."""
    z1 = torch.randn(16, 8).to(dtype)
    z2 = {
        "spread": torch.randn(16, 8).to(dtype),
        "equal views": z1,
        "opposite views": -z1,
        "collapsed": z1[:1].expand(16, 8),
    }[data]
    z1 = z1[:1].expand(16, 8) if data == "collapsed" else z1
    exact = {
        "nt_xent": nt_xent(z1.double(), z2.double(), 0.01),
        "info_nce": info_nce(z1.double(), z2.double(), temperature=0.01),
        "moco": moco(z1.double(), z2.double(), z2.double().roll(1, 0), 0.01),
    }
    losses: dict[str, Loss] = {
        "nt_xent": NTXentLoss(0.01),
        "info_nce": InfoNCELoss(0.01),
        "moco": lambda q, k: MemoryBankLoss(0.01)(q, k, k.detach().roll(1, 0)),
    }
    for name, loss in losses.items():
        value, *gradients = value_and_gradients(loss, z1, z2)
        assert value.item() == pytest.approx(exact[name].item(), rel=1e-5, abs=1e-4), name
        assert all(torch.isfinite(g).all() for g in gradients), name


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("k", [2, 5])
def test_orthogonal_data_with_equal_views_have_a_closed_form(k: int, temperature: float) -> None:
    z = torch.eye(k, dtype=torch.float64)
    pull = math.exp(-1 / temperature)
    assert NTXentLoss(temperature)(z, z).item() == pytest.approx(math.log1p((2 * k - 2) * pull), abs=1e-12)
    assert InfoNCELoss(temperature)(z, 3 * z).item() == pytest.approx(math.log1p((k - 1) * pull), abs=1e-12)
    assert MemoryBankLoss(temperature)(z, z, z, in_bank=True).item() == pytest.approx(math.log1p((k - 1) * pull), abs=1e-12)
    # A key that is in the bank but is not said to be counts twice.
    assert MemoryBankLoss(temperature)(z, z, z).item() == pytest.approx(math.log(2 + (k - 1) * pull), abs=1e-12)
    assert AlignUniformLoss(t=3.0)(z, z).item() == pytest.approx(-6.0)


@pytest.mark.parametrize("k", [1, 2, 9])
def test_a_collapsed_batch_costs_the_log_of_the_number_of_candidates(k: int) -> None:
    z = torch.ones(k, 4, dtype=torch.float64)
    assert NTXentLoss(0.1)(z, z).item() == pytest.approx(math.log(2 * k - 1), abs=1e-12)
    assert InfoNCELoss(0.1)(z, z, z).item() == pytest.approx(math.log(k), abs=1e-12)
    assert MemoryBankLoss(0.1)(z, z, torch.ones(6, 4)).item() == pytest.approx(math.log(7), abs=1e-12)
    assert MemoryBankLoss(0.1)(z, z, torch.ones(6, 4), in_bank=True).item() == pytest.approx(math.log(6), abs=1e-12)
    if k > 1:
        assert AlignUniformLoss()(z, z).item() == pytest.approx(0.0, abs=1e-12)


def test_opposite_points_have_closed_forms() -> None:
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert AlignUniformLoss(alpha=3.0, t=2.5)(z, -z).item() == pytest.approx(2**3 - 4 * 2.5)
    # Each sees its other view at cosine -1, and of the others one at 1 and one at -1.
    assert NTXentLoss(0.5)(z, -z).item() == pytest.approx(math.log(2 + math.exp(4)))
    assert InfoNCELoss(0.5)(z, -z).item() == pytest.approx(math.log(1 + math.exp(4)))


@pytest.mark.parametrize("in_bank", [False, True])
def test_a_memory_bank_is_mocos_queue_or_a_bank_of_all_instances(in_bank: bool) -> None:
    queries, keys = doubles(2)
    bank = torch.cat([BANK[:4], keys, BANK[4:]]) if in_bank else BANK
    rows = torch.arange(4, 11)

    def formula(q: Tensor, k: Tensor) -> Tensor:
        return instance_discrimination(q, bank, rows, 0.07) if in_bank else moco(q, k, bank, 0.07)

    exact = value_and_gradients(lambda q: formula(q, keys), queries)
    found = value_and_gradients(lambda q: MemoryBankLoss()(q, keys, bank, in_bank=in_bank), queries)
    for x, y in zip(found, exact, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("in_bank", [False, True])
def test_keys_and_bank_have_no_gradient(in_bank: bool) -> None:
    queries, keys = (z.requires_grad_() for z in doubles(2))
    bank = torch.cat([keys.detach(), BANK]).requires_grad_()
    value = MemoryBankLoss()(queries, keys, bank, in_bank=in_bank)
    gradients = torch.autograd.grad(value, (queries, keys, bank), allow_unused=True)
    assert [g is None for g in gradients] == [False, True, True]


def test_one_bank_may_serve_as_queries_too() -> None:
    z = doubles(1)[0].requires_grad_()
    value = MemoryBankLoss(0.2)(z, z, z, in_bank=True)
    (gradient,) = torch.autograd.grad(value, z)
    exact = value_and_gradients(lambda q: instance_discrimination(q, z.detach(), torch.arange(7), 0.2), z)
    torch.testing.assert_close([value.detach(), gradient], exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_info_nce_is_log_k_minus_the_mean_bound_of_both_directions(temperature: float) -> None:
    z = doubles(3)
    density = VonMisesFisher(1 / temperature)
    bounds = [infonce_bound(z[s], z[t], density).item() for s in range(3) for t in range(3) if s != t]
    assert InfoNCELoss(temperature)(*z).item() == pytest.approx(math.log(7) - sum(bounds) / 6)
    both = infonce_bound(z[0], z[1], density) + infonce_bound(z[1], z[0], density)
    assert InfoNCELoss(temperature)(z[0], z[1]).item() == pytest.approx(math.log(7) - both.item() / 2)


def test_align_uniform_is_made_of_the_two_metrics() -> None:
    z1, z2 = doubles(2)
    exact = 0.5 * alignment(z1, z2, 1.5) + 2.0 * (uniformity(z1, 3.0) + uniformity(z2, 3.0)) / 2
    assert AlignUniformLoss(1.5, 3.0, 0.5, 2.0)(z1, z2).item() == pytest.approx(exact.item())
    assert AlignUniformLoss(uniform_weight=0.0)(z1, z2).item() == pytest.approx(alignment(z1, z2).item())
    assert AlignUniformLoss(align_weight=0.0)(z1, z1).item() == pytest.approx(uniformity(z1).item())


@every_loss
def test_no_order_length_or_rotation_matters(name: str) -> None:
    loss, _, has_gradient = OF_VIEWS[name]
    z = doubles(len(has_gradient))
    value = loss(*z).item()
    order = torch.randperm(7)
    assert loss(*(x[order] for x in z)).item() == pytest.approx(value, rel=1e-10)
    assert loss(*(x * 10 ** (6 * torch.rand(7, 1, dtype=torch.float64) - 3) for x in z)).item() == pytest.approx(
        value, rel=1e-10
    )
    if name != "MemoryBankLoss":  # whose bank would have to turn with the views
        rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
        assert loss(*(x @ rotation for x in z)).item() == pytest.approx(value, rel=1e-10)
        assert loss(*z[::-1]).item() == pytest.approx(value, rel=1e-10)


@every_loss
def test_only_matching_rows_are_positives(name: str) -> None:
    loss, _, has_gradient = OF_VIEWS[name]
    z = doubles(1)[0]
    others = [z + 0.1 * torch.randn_like(z) for _ in has_gradient[1:]]
    assert loss(z, *others) < loss(z, *(x.roll(1, 0) for x in others))


@every_loss
def test_gradients_are_orthogonal_to_the_projections_and_shrink_with_their_length(name: str) -> None:
    """What normalising them inside the loss means."""
    loss, _, has_gradient = OF_VIEWS[name]
    z = doubles(len(has_gradient))
    near, far = value_and_gradients(loss, *z), value_and_gradients(loss, *(10 * x for x in z))
    for x, g, h in zip(z, near[1:], far[1:], strict=True):
        assert (x * g).sum(dim=1).abs().max().item() <= 1e-10
        torch.testing.assert_close(g, 10 * h, rtol=1e-8, atol=1e-12)


TEMPERED: dict[str, tuple[Callable[[Any], nn.Module], Callable[..., Tensor], Callable[..., Tensor]]] = {
    "NTXentLoss": (NTXentLoss, lambda loss, z: loss(z[0], z[1]), lambda z, tau: nt_xent(z[0], z[1], tau)),
    "InfoNCELoss": (InfoNCELoss, lambda loss, z: loss(*z), lambda z, tau: info_nce(*z, temperature=tau)),
    "MemoryBankLoss": (
        MemoryBankLoss,
        lambda loss, z: loss(z[0], z[1], z[2]),
        lambda z, tau: moco(z[0], z[1].detach(), z[2].detach(), tau),
    ),
    "MemoryBankLoss, in bank": (
        MemoryBankLoss,
        lambda loss, z: loss(z[0], z[1], z[1], in_bank=True),
        lambda z, tau: instance_discrimination(z[0], z[1].detach(), torch.arange(7), tau),
    ),
}
every_tempered = pytest.mark.parametrize("name", TEMPERED)


@pytest.mark.parametrize("shape", [(), (1,)])
@every_tempered
def test_a_learnt_temperature_is_a_parameter_with_the_right_gradient(name: str, shape: tuple[int, ...]) -> None:
    make, call, formula = TEMPERED[name]
    z = [x.requires_grad_() for x in doubles(3)]
    temperature = nn.Parameter(torch.full(shape, 0.3, dtype=torch.float64))
    loss = make(temperature)
    assert dict(loss.named_parameters()) == {"temperature": temperature}
    assert list(loss.state_dict()) == ["temperature"]
    exact_temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    value, exact = call(loss, z), formula(z, exact_temperature)
    assert value.shape == ()
    assert value.item() == pytest.approx(exact.item(), rel=1e-10)
    found = torch.autograd.grad(value, [z[0], temperature])
    for x, y in zip(found, torch.autograd.grad(exact, [z[0], exact_temperature]), strict=True):
        torch.testing.assert_close(x, y.reshape(x.shape), rtol=1e-9, atol=1e-11)


@every_tempered
def test_a_learnt_temperature_in_float32_serves_half_precision(name: str) -> None:
    make, call, formula = TEMPERED[name]
    z = [x.half().requires_grad_() for x in doubles(3)]
    loss = make(nn.Parameter(torch.tensor(0.1)))
    exact_temperature = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    value, exact = call(loss, z), formula([x.double() for x in z], exact_temperature)
    assert value.dtype == torch.float32
    value.backward()
    exact.backward()
    (parameter,) = loss.parameters()
    assert parameter.grad is not None
    assert exact_temperature.grad is not None
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)
    assert parameter.grad.item() == pytest.approx(exact_temperature.grad.item(), rel=1e-4)


@every_tempered
def test_a_learnt_temperature_that_training_drove_out_of_range_is_refused(name: str) -> None:
    make, call, _ = TEMPERED[name]
    loss = make(nn.Parameter(torch.tensor(0.1)))
    with torch.no_grad():
        next(loss.parameters()).fill_(-0.1)
    with pytest.raises(ValueError, match="temperature"):
        call(loss, doubles(3))


@every_tempered
def test_a_step_lowers_the_loss(name: str) -> None:
    make, call, _ = TEMPERED[name]
    loss = make(0.2)
    z = [x.requires_grad_() for x in doubles(3)]
    value = call(loss, z)
    gradients = torch.autograd.grad(value, z, allow_unused=True)
    moved = [x if g is None else x - 0.05 * g for x, g in zip(z, gradients, strict=True)]
    assert call(loss, moved) < value


def test_modules_without_a_learnt_temperature_have_no_state() -> None:
    for loss in (NTXentLoss(), InfoNCELoss(), MemoryBankLoss(), AlignUniformLoss()):
        assert not loss.state_dict()
        assert not list(loss.parameters())


def test_defaults_and_repr() -> None:
    assert repr(NTXentLoss()) == "NTXentLoss(temperature=0.1, gather_distributed=False)"
    assert repr(InfoNCELoss(0.2, True)) == "InfoNCELoss(temperature=0.2, gather_distributed=True)"
    assert repr(MemoryBankLoss()) == "MemoryBankLoss(temperature=0.07, gather_distributed=False)"
    shown = repr(AlignUniformLoss(uniform_weight=0.5))
    for setting in ("alpha=2", "t=2", "align_weight=1", "uniform_weight=0.5", "gather_distributed=False"):
        assert setting in shown


@pytest.mark.parametrize("backend", ["dense", "tiled"])
@pytest.mark.parametrize("precision", ["fast", "ieee"])
def test_backends_and_precisions_pass_through(monkeypatch: pytest.MonkeyPatch, precision: Any, backend: Any) -> None:
    from entrec.pairwise import backends

    monkeypatch.setitem(backends._TILE, "cpu", 16**2)
    how = {"precision": precision, "backend": backend}
    z = doubles(3, 45)
    pairs: list[tuple[Tensor, Tensor]] = [
        (NTXentLoss(0.2, **how)(*z[:2]), nt_xent(z[0], z[1], 0.2)),
        (InfoNCELoss(0.2, **how)(*z), info_nce(*z, temperature=0.2)),
        (MemoryBankLoss(0.2, **how)(*z), moco(z[0], z[1], z[2], 0.2)),
        (AlignUniformLoss(**how)(*z[:2]), align_uniform(z[0], z[1], 2.0, 2.0, 1.0, 1.0)),
    ]
    for value, exact in pairs:
        assert value.item() == pytest.approx(exact.item(), rel=1e-10)


@every_loss
def test_autocast_changes_neither_value_nor_gradient(name: str) -> None:
    loss, _, has_gradient = OF_VIEWS[name]
    z = [x.float() for x in doubles(len(has_gradient), 16)]
    outside = value_and_gradients(loss, *z)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = value_and_gradients(loss, *z)
    for x, y in zip(inside, outside, strict=True):
        assert torch.equal(x, y)


@every_loss
def test_calling_twice_changes_nothing(name: str) -> None:
    loss, _, has_gradient = OF_VIEWS[name]
    z = doubles(len(has_gradient))
    assert loss(*z).item() == loss(*z).item()


def test_the_same_tensor_may_be_both_views() -> None:
    z = doubles(1)[0]
    for loss, formula in (
        (NTXentLoss(0.2), lambda x: nt_xent(x, x, 0.2)),
        (InfoNCELoss(0.2), lambda x: info_nce(x, x, temperature=0.2)),
    ):
        found = value_and_gradients(lambda x, loss=loss: loss(x, x), z)
        torch.testing.assert_close(found, value_and_gradients(formula, z), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["NTXentLoss", "InfoNCELoss of 3", "MemoryBankLoss", "AlignUniformLoss"])
def test_compiled_losses_have_no_break_and_the_same_numbers(name: str) -> None:
    torch._dynamo.reset()
    loss, _, has_gradient = OF_VIEWS[name]
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for k in (7, 9, 12):
        z = doubles(len(has_gradient), k)
        for x, y in zip(value_and_gradients(compiled, *z), value_and_gradients(loss, *z), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)


TWO_VIEWS: list[Callable[[Any, Any], Tensor]] = [
    NTXentLoss(),
    InfoNCELoss(),
    lambda z1, z2: InfoNCELoss()(torch.ones(6, 4), z1, z2),
    lambda z1, z2: MemoryBankLoss()(z1, z2, torch.ones(3, 4)),
    AlignUniformLoss(),
]
FINE = torch.randn(6, 4, generator=torch.Generator().manual_seed(5))


def _spoilt(value: float) -> Tensor:
    z = FINE.clone()
    z[2, 1] = value
    return z


ZERO_ROW = torch.cat([FINE[:5], torch.zeros(1, 4)])
BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "other rows": (FINE[:5], ValueError, "same shape"),
    "other columns": (torch.randn(6, 3), ValueError, "same|last dimension"),
    "one dimension": (FINE[0], ValueError, "shape"),
    "three dimensions": (FINE[None], ValueError, "shape"),
    "integers": (FINE.long(), TypeError, "floating-point"),
    "a list": (FINE.tolist(), TypeError, "Tensor"),
    "another device": (FINE.to("meta"), ValueError, "device"),
    "NaN": (_spoilt(math.nan), ValueError, "finite"),
    "infinity": (_spoilt(math.inf), ValueError, "finite"),
    "a zero vector": (ZERO_ROW, ValueError, "zero vector"),
}


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("call", range(len(TWO_VIEWS)))
@pytest.mark.parametrize("position", [0, 1])
def test_a_bad_view_is_named(fault: str, call: int, position: int) -> None:
    bad, kind, words = BAD[fault]
    views: list[Any] = [FINE, FINE]
    views[position] = bad
    names = {2: "z2|z3", 3: "queries|keys"}.get(call, "z1|z2")
    with pytest.raises(kind, match=words) as raised:
        TWO_VIEWS[call](*views)
    assert any(name in str(raised.value) for name in names.split("|")), raised.value


@pytest.mark.parametrize("fault", ["one dimension", "integers", "a list", "another device", "NaN", "a zero vector"])
def test_a_bad_bank_is_named(fault: str) -> None:
    bad, kind, words = BAD[fault]
    with pytest.raises(kind, match=words) as raised:
        MemoryBankLoss()(FINE, FINE, bad)
    assert "bank" in str(raised.value)


def test_a_bank_of_another_width_or_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"queries and bank .* last dimension"):
        MemoryBankLoss()(FINE, FINE, torch.ones(3, 5))
    with pytest.raises(ValueError, match="bank must have at least 1 row"):
        MemoryBankLoss()(FINE, FINE, torch.ones(0, 4))


def test_too_few_rows_or_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="z1 must have at least 2 rows"):
        AlignUniformLoss()(FINE[:1], FINE[:1])
    for call in TWO_VIEWS[:2]:
        with pytest.raises(ValueError, match="z1 must have at least 1 row"):
            call(FINE[:0], FINE[:0])
        with pytest.raises(ValueError, match="z1 must have at least 2 columns"):
            call(FINE[:, :1], FINE[:, :1])


def test_a_single_datum_has_no_negatives_and_costs_nothing() -> None:
    for loss in (NTXentLoss(), InfoNCELoss()):
        value, *gradients = value_and_gradients(loss, *(x[:1] for x in doubles(2)))
        assert value.item() == pytest.approx(0.0, abs=1e-12)
        assert all(g.abs().max() <= 1e-12 for g in gradients)


def test_mixed_precision_takes_the_wider_dtype() -> None:
    z1, z2 = doubles(2)
    for loss, formula, _ in (OF_VIEWS[name] for name in ("NTXentLoss", "InfoNCELoss", "AlignUniformLoss")):
        value = loss(z1.float(), z2)
        assert value.dtype == torch.float64
        assert value.item() == pytest.approx(formula(z1.float().double(), z2).item(), rel=1e-10)
    value = MemoryBankLoss(0.2)(z1.float(), z2.float(), BANK)
    assert value.item() == pytest.approx(moco(z1.float().double(), z2.float().double(), BANK, 0.2).item(), rel=1e-6)


@pytest.mark.parametrize("make", [NTXentLoss, InfoNCELoss, MemoryBankLoss])
def test_a_bad_temperature_is_refused(make: Callable[..., nn.Module]) -> None:
    for bad in (0.0, -0.1, math.nan, math.inf, torch.tensor(-1.0), torch.tensor(0.0)):
        with pytest.raises(ValueError, match="temperature must be positive and finite"):
            make(bad)
    with pytest.raises(ValueError, match="temperature must be a number or a tensor of one element"):
        make(torch.ones(2))
    for wrong in ("0.1", None, True, torch.tensor(1)):
        with pytest.raises(TypeError, match="temperature"):
            make(wrong)


def test_bad_settings_of_align_uniform_are_refused() -> None:
    make: Callable[..., nn.Module] = AlignUniformLoss
    for name in ("alpha", "t"):
        for bad in (0.0, -1.0, math.nan):
            with pytest.raises(ValueError, match=f"{name} must be positive"):
                make(**{name: bad})
    for name in ("align_weight", "uniform_weight"):
        with pytest.raises(ValueError, match=f"{name} must be at least 0"):
            make(**{name: -1.0})
        with pytest.raises(TypeError, match=f"{name} must be a number"):
            make(**{name: "1"})


@pytest.mark.parametrize("make", [NTXentLoss, InfoNCELoss, MemoryBankLoss, AlignUniformLoss])
def test_unknown_words_are_refused_when_the_loss_is_made(make: Callable[..., nn.Module]) -> None:
    with pytest.raises(ValueError, match="precision must be one of 'fast', 'ieee', got 'half'"):
        make(precision="half")
    with pytest.raises(ValueError, match=r"backend must be one of .*'dense'.*, got 'cuda'"):
        make(backend="cuda")


def test_unvalidated_losses_leave_faults_in_the_flag() -> None:
    from entrec import raise_if_invalid

    for make in (NTXentLoss, InfoNCELoss, AlignUniformLoss):
        make(validate=False)(FINE, ZERO_ROW)
        with pytest.raises(ValueError, match="zero vector"):
            raise_if_invalid()
    MemoryBankLoss(validate=False)(FINE, FINE, _spoilt(math.nan))
    with pytest.raises(ValueError, match="NaN or infinity"):
        raise_if_invalid()


def test_the_peers_loss_is_the_same() -> None:
    peers = pytest.importorskip("lightly.loss")
    for temperature in (0.5, 0.1):
        z1, z2 = (torch.randn(32, 16) for _ in range(2))
        found = value_and_gradients(NTXentLoss(temperature), z1, z2)
        exact = value_and_gradients(peers.NTXentLoss(temperature=temperature), z1, z2)
        for x, y in zip(found, exact, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-6)
