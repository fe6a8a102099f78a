"""Several gloo processes give what one process gives on the whole batch: the loss and the parameters' gradients after DDP.

Every rank has other data, and another number of rows. The truth is written here, densely and in float64, from the formulas.
"""

import faulthandler
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from entrec import Gaussian, GeneralizedNormal, Laplace, VonMisesFisher, kde_entropy
from entrec.losses import AlignUniformLoss, DiscreteERLoss, ERLoss, InfoNCELoss, MemoryBankLoss, NTXentLoss
from entrec.pairwise import backends
from tests.memory import Largest
from tests.ranks import on_ranks

Density = VonMisesFisher | Gaussian | Laplace | GeneralizedNormal
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Rows on each rank: by the number of ranks, what is gathered, and what each rank takes alone (enough for two chunks).
GATHERED: dict[int, list[tuple[int, ...]]] = {1: [(8,)], 2: [(5, 3), (1, 7)], 4: [(4, 1, 6, 3)]}
ALONE: dict[int, tuple[int, ...]] = {1: (8,), 2: (6, 2), 4: (4, 2, 6, 2)}
BANK = torch.randn(9, 3, generator=torch.Generator().manual_seed(11))


class Outputs(NamedTuple):
    """What the branches give: three views' projections, a teacher's of the first two, and a predictor's of all."""

    views: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]
    predictions: tuple[Tensor, ...]


class Objective(NamedTuple):
    """A loss, how it is called, and its formula, which gets the learnt parameters last."""

    make: Callable[[bool], nn.Module]
    call: Callable[[nn.Module, Outputs], Tensor]
    exact: Callable[[Outputs, list[Tensor]], Tensor]


# The truth.


def unit(z: Tensor) -> Tensor:
    length: Tensor = z.norm(dim=-1, keepdim=True)
    return z / length


def log_q(density: Density, x: Tensor, y: Tensor, learnt: list[Tensor]) -> Tensor:
    """Log-densities in three dimensions, where von Mises-Fisher's constant is kappa / (4 pi sinh kappa)."""
    parameters = learnt or [torch.tensor(value, dtype=x.dtype) for value in vars(density).values()]
    parameter = parameters[0]
    if isinstance(density, VonMisesFisher):
        log_sinh = parameter + torch.log1p(-torch.exp(-2 * parameter)) - math.log(2)
        log_c = parameter.log() - math.log(4 * math.pi) - log_sinh
        return parameter * (unit(x) * unit(y)).sum(-1) + log_c
    apart: Tensor = (x - y).abs()
    if isinstance(density, Gaussian):
        return -0.5 * (apart / parameter).square().sum(-1) - 1.5 * torch.log(2 * math.pi * parameter.square())
    if isinstance(density, Laplace):
        return -(apart / parameter).sum(-1) - 3 * torch.log(2 * parameter)
    scale, here = parameters[1], apart == 0  # where a power has no gradient
    powers = ((apart / scale).masked_fill(here, 1.0) ** parameter).masked_fill(here, 0.0)
    return -powers.sum(-1) + 3 * (torch.log(parameter / (2 * scale)) - torch.lgamma(1 / parameter))


def entropy(z: Tensor, density: Density, estimator: str, leave_one_out: bool, learnt: list[Tensor]) -> Tensor:
    s = log_q(density, z[:, None], z[None, :], learnt)
    if leave_one_out:
        s = s.masked_fill(torch.eye(len(z), dtype=torch.bool), -math.inf)
    log_p = s.logsumexp(dim=1) - math.log(len(z) - leave_one_out)
    weights = torch.softmax(log_p, dim=0) if estimator == "plugin" else torch.full_like(log_p, 1 / len(z))
    return -(weights * log_p).sum()


def er(
    outputs: Outputs,
    learnt: list[Tensor],
    density: Density,
    estimator: str,
    leave_one_out: bool,
    v: int,
    teacher: bool = False,
    kernel: Density | None = None,
) -> Tensor:
    views = outputs.views[:v]
    targets = [t.detach() for t in outputs.targets] if teacher else views
    sources = outputs.predictions[:v] if teacher else views
    pairs = [log_q(density, targets[t], sources[s], learnt).mean() for s in range(v) for t in range(len(targets)) if s != t]
    entropies = [entropy(z, kernel or density, estimator, leave_one_out, [] if kernel is not None else learnt) for z in views]
    return -torch.stack(entropies).mean() - WEIGHT * torch.stack(pairs).mean()


def discrete_er(outputs: Outputs, learnt: list[Tensor], chunks: int, teacher: bool) -> Tensor:
    views = [torch.log_softmax(z / 0.5, dim=1) for z in outputs.views[:2]]
    entropies = []
    for z in views:
        for part in z.exp().chunk(chunks):
            p = part.mean(dim=0)
            entropies.append(-(p * p.log()).sum())
    targets = [functional.softmax(t, dim=1).detach() for t in outputs.targets] if teacher else [z.exp() for z in views]
    sources = [torch.log_softmax(z / 0.5, dim=1) for z in outputs.predictions[:2]] if teacher else views
    pairs = [(targets[t] * sources[1 - t]).sum(dim=1).mean() for t in range(2)]
    return -torch.stack(entropies).mean() - WEIGHT * torch.stack(pairs).mean()


def nt_xent(outputs: Outputs, learnt: list[Tensor]) -> Tensor:
    z = unit(torch.cat(outputs.views[:2]))
    k = len(z) // 2
    temperature = learnt[0] if learnt else 0.3
    logits = (z @ z.T / temperature).masked_fill(torch.eye(2 * k, dtype=torch.bool), -math.inf)
    return functional.cross_entropy(logits, torch.arange(2 * k).roll(k))


def info_nce(outputs: Outputs, learnt: list[Tensor], v: int) -> Tensor:
    views, temperature = [unit(z) for z in outputs.views[:v]], learnt[0] if learnt else 0.3
    rows = torch.arange(len(views[0]))
    pairs = [functional.cross_entropy(x @ y.T / temperature, rows) for x in views for y in views if x is not y]
    return torch.stack(pairs).mean()


def memory_bank(outputs: Outputs, learnt: list[Tensor], in_bank: bool) -> Tensor:
    temperature = learnt[0] if learnt else 0.3
    query, key, bank = unit(outputs.views[0]), unit(outputs.targets[1]).detach(), unit(BANK.to(outputs.views[0].dtype))
    positives = (query * key).sum(dim=1, keepdim=True) / temperature
    negatives = query @ bank.T / temperature
    logits = negatives if in_bank else torch.cat([positives, negatives], dim=1)
    return (logits.logsumexp(dim=1) - positives.squeeze(1)).mean()


def align_uniform(outputs: Outputs, learnt: list[Tensor]) -> Tensor:
    u1, u2 = (unit(z) for z in outputs.views[:2])
    uniform = [torch.pdist(u).square().mul(-3.0).exp().mean().log() for u in (u1, u2)]
    align: Tensor = (u1 - u2).norm(dim=1).pow(1.5).mean()
    return 0.7 * align + 0.4 * (uniform[0] + uniform[1]) / 2


# What is asked.

WEIGHT = 0.7


class Entropy(nn.Module):
    """`kde_entropy` of two views at once, as a module."""

    def __init__(self, density: Density, leave_one_out: bool, gather_distributed: bool) -> None:
        super().__init__()
        self.density, self.leave_one_out, self.gather_distributed = density, leave_one_out, gather_distributed

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        how: dict[str, Any] = {"leave_one_out": self.leave_one_out, "gather_distributed": self.gather_distributed}
        of_two = kde_entropy(torch.stack([z1, z2]), self.density, "plugin", **how)
        return of_two.mean() + 2 * kde_entropy(z1, self.density, **how)


def _parameter(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value))


def _er(density: Callable[[], Density], estimator: Any, leave_one_out: bool, v: int, teacher: bool = False) -> Objective:
    def call(loss: nn.Module, outputs: Outputs) -> Tensor:
        with_teacher = {"targets": outputs.targets, "predictions": outputs.predictions[:v]} if teacher else {}
        result: Tensor = loss(*outputs.views[:v], **with_teacher)
        return result

    return Objective(
        lambda gather: ERLoss(density(), None, estimator, WEIGHT, leave_one_out, gather),
        call,
        lambda outputs, learnt: er(outputs, learnt, density(), estimator, leave_one_out, v, teacher),
    )


def _two(loss: nn.Module, outputs: Outputs) -> Tensor:
    result: Tensor = loss(*outputs.views[:2])
    return result


def _three(loss: nn.Module, outputs: Outputs) -> Tensor:
    result: Tensor = loss(*outputs.views)
    return result


def _discrete(loss: nn.Module, outputs: Outputs, teacher: bool) -> Tensor:
    codes = tuple(functional.softmax(t, dim=1) for t in outputs.targets)
    with_teacher = {"targets": codes, "predictions": outputs.predictions[:2]} if teacher else {}
    result: Tensor = loss(*outputs.views[:2], **with_teacher)
    return result


def _bank(loss: nn.Module, outputs: Outputs, in_bank: bool) -> Tensor:
    z = outputs.views[0]
    result: Tensor = loss(z, outputs.targets[1], BANK.to(z.dtype), in_bank=in_bank)
    return result


DENSITIES: dict[str, Callable[[], Density]] = {
    "vmf": lambda: VonMisesFisher(4.0),
    "gaussian": lambda: Gaussian(0.6),
    "laplace": lambda: Laplace(0.8),
}
OBJECTIVES: dict[str, Objective] = {
    **{
        f"er {name} {estimator}{' leave-one-out' if leave_one_out else ''}": _er(density, estimator, leave_one_out, 2)
        for name, density in DENSITIES.items()
        for estimator in ("plugin", "joe")
        for leave_one_out in (False, True)
    },
    "er 3 views": _er(DENSITIES["vmf"], "plugin", True, 3),
    "er teacher and predictor": _er(DENSITIES["vmf"], "plugin", False, 2, teacher=True),
    "er multi-crop": _er(DENSITIES["gaussian"], "joe", True, 3, teacher=True),
    "er other kernel": Objective(
        lambda gather: ERLoss(VonMisesFisher(4.0), Gaussian(0.6), "joe", WEIGHT, gather_distributed=gather),
        _two,
        lambda outputs, learnt: er(outputs, learnt, VonMisesFisher(4.0), "joe", False, 2, kernel=Gaussian(0.6)),
    ),
    "er learnt kappa": _er(lambda: VonMisesFisher(_parameter(4.0)), "plugin", False, 2),
    "er learnt kappa, teacher": _er(lambda: VonMisesFisher(_parameter(4.0)), "joe", True, 2, teacher=True),
    "er learnt sigma": _er(lambda: Gaussian(_parameter(0.6)), "plugin", True, 2),
    "er learnt beta and scale": _er(lambda: GeneralizedNormal(_parameter(1.5), _parameter(0.9)), "plugin", True, 2),
    "er learnt beta and scale, self": _er(lambda: GeneralizedNormal(_parameter(1.5), _parameter(0.9)), "joe", False, 2),
    "er learnt scale": _er(lambda: Laplace(_parameter(0.8)), "joe", False, 3),
    **{
        f"discrete er, {chunks} chunks{', teacher' if teacher else ''}": Objective(
            partial(DiscreteERLoss, 0.5, WEIGHT, chunks),
            partial(_discrete, teacher=teacher),
            partial(discrete_er, chunks=chunks, teacher=teacher),
        )
        for chunks in (1, 2)
        for teacher in (False, True)
    },
    "nt-xent": Objective(lambda gather: NTXentLoss(0.3, gather), _two, nt_xent),
    "nt-xent, learnt": Objective(lambda gather: NTXentLoss(_parameter(0.4), gather), _two, nt_xent),
    "info-nce": Objective(lambda gather: InfoNCELoss(0.3, gather), _two, partial(info_nce, v=2)),
    "info-nce 3 views": Objective(lambda gather: InfoNCELoss(0.3, gather), _three, partial(info_nce, v=3)),
    "info-nce, learnt": Objective(lambda gather: InfoNCELoss(_parameter(0.4), gather), _two, partial(info_nce, v=2)),
    **{
        f"memory bank{', in bank' if in_bank else ''}{', learnt' if learnt else ''}": Objective(
            lambda gather, learnt=learnt: MemoryBankLoss(_parameter(0.4) if learnt else 0.3, gather),  # type: ignore[misc]
            partial(_bank, in_bank=in_bank),
            partial(memory_bank, in_bank=in_bank),
        )
        for in_bank in (False, True)
        for learnt in (False, True)
    },
    "align + uniform": Objective(lambda gather: AlignUniformLoss(1.5, 3.0, 0.7, 0.4, gather), _two, align_uniform),
    "kde_entropy": Objective(
        lambda gather: Entropy(Gaussian(0.6), True, gather),
        _two,
        lambda outputs, learnt: (
            torch.stack([entropy(z, Gaussian(0.6), "plugin", True, []) for z in outputs.views[:2]]).mean()
            + 2 * entropy(outputs.views[0], Gaussian(0.6), "joe", True, [])
        ),
    ),
}
WITH_PREDICTOR = [name for name in OBJECTIVES if "teacher" in name or "multi-crop" in name]


class Network(nn.Module):
    """A small encoder shared by the views, a fixed teacher, a predictor where it is used, and the loss with what it learns."""

    def __init__(self, name: str, gather: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.name = name
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        self.teacher = nn.Linear(4, 3).requires_grad_(False)
        self.predictor = nn.Linear(3, 3) if name in WITH_PREDICTOR else None
        self.loss = OBJECTIVES[name].make(gather)

    def outputs(self, batch: Tensor) -> Outputs:
        """Of a batch (k, 3, 4): three views of each datum."""
        z = tuple(self.encoder(batch).unbind(dim=1))
        predictions = tuple(self.predictor(x) for x in z) if self.predictor is not None else z
        return Outputs(z, tuple(self.teacher(batch[:, :2]).unbind(dim=1)), predictions)

    def forward(self, batch: Tensor) -> Tensor:
        return OBJECTIVES[self.name].call(self.loss, self.outputs(batch))

    def exact(self, batch: Tensor) -> Tensor:
        return OBJECTIVES[self.name].exact(self.outputs(batch), list(self.loss.parameters()))

    def gradients(self) -> dict[str, Tensor]:
        return {name: p.grad.clone() for name, p in self.named_parameters() if p.grad is not None}


def data(rows: int) -> Tensor:
    """A batch whose every row differs, and whose first rows lie elsewhere than its last."""
    x = torch.randn(rows, 3, 4, generator=torch.Generator().manual_seed(7))
    return x + torch.linspace(-1, 1, rows)[:, None, None]


# What every rank does.


def _key(name: str, dtype: torch.dtype, sizes: tuple[int, ...], gather: bool) -> str:
    return f"{name} | {dtype} | {sizes} | {gather}"


def _steps(rank: int, world_size: int) -> dict[str, dict[str, Tensor]]:
    """One step of every objective, in both dtypes, gathered at every division of the rows and alone at one."""
    results = {}
    plans = [(sizes, True) for sizes in GATHERED[world_size]] + [(ALONE[world_size], False)]
    for name in OBJECTIVES:
        for dtype in TOLERANCE:
            for sizes, gather in plans:
                network = Network(name, gather).to(dtype)
                parallel = DistributedDataParallel(network)
                own = data(sum(sizes)).to(dtype).split(sizes)[rank].clone().requires_grad_()
                value = parallel(own)
                value.backward()
                assert own.grad is not None
                results[_key(name, dtype, sizes, gather)] = {
                    **network.gradients(),
                    "value": value.detach(),
                    "batch": own.grad,
                }
    return results


def _large(rows: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 2, generator=generator, requires_grad=True) for _ in range(3)]


TILE = 32**2
LARGE: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "er": lambda z: ERLoss(VonMisesFisher(4.0), gather_distributed=True)(*z),
    "er gaussian": lambda z: ERLoss(Gaussian(0.6), leave_one_out=True, gather_distributed=True)(*z[:2]),
    "er laplace": lambda z: ERLoss(Laplace(torch.tensor(0.6)), gather_distributed=True)(*z[:2]),
    "discrete er": lambda z: DiscreteERLoss(chunks=2, gather_distributed=True)(*z[:2]),
    "nt-xent": lambda z: NTXentLoss(gather_distributed=True)(*z[:2]),
    "info-nce": lambda z: InfoNCELoss(gather_distributed=True)(*z),
    "memory bank": lambda z: MemoryBankLoss(gather_distributed=True)(*z),
    "align + uniform": lambda z: AlignUniformLoss(gather_distributed=True)(*z[:2]),
    "kde_entropy": lambda z: kde_entropy(torch.stack(z), VonMisesFisher(4.0), gather_distributed=True).sum(),
}


def _large_sizes(world_size: int) -> list[int]:
    return [400 // world_size + (20 if rank == 0 else 0) - (20 if rank == 1 else 0) for rank in range(world_size)]


def _memory(rank: int, world_size: int) -> dict[str, int]:
    """The largest tensor of a forward and backward pass, at many rows and small tiles."""
    tile, backends._TILE["cpu"] = backends._TILE["cpu"], TILE
    results = {}
    for name, loss in LARGE.items():
        with Largest() as watch:
            loss(_large(_large_sizes(world_size)[rank], rank)).backward()
        results[name] = watch.elements
    backends._TILE["cpu"] = tile
    return results


FAULTS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    **LARGE,
    "er joe": lambda z: ERLoss(VonMisesFisher(4.0), estimator="joe", leave_one_out=True, gather_distributed=True)(*z),
    "targets": lambda z: ERLoss(Gaussian(1.0), gather_distributed=True)(
        torch.ones_like(z[0]), torch.ones_like(z[0]), targets=z[:2]
    ),
    "predictions": lambda z: ERLoss(Gaussian(1.0), gather_distributed=True)(
        torch.ones_like(z[0]), torch.ones_like(z[0]), predictions=z[:2]
    ),
    "bank": lambda z: MemoryBankLoss(gather_distributed=True)(torch.ones_like(z[0]), torch.ones_like(z[0]), z[0]),
}


def _answer(call: Callable[[list[Tensor]], Tensor], z: list[Tensor]) -> tuple[str, float]:
    start = time.perf_counter()
    try:
        call(z)
    except ValueError as error:
        return str(error), time.perf_counter() - start
    return "", time.perf_counter() - start


def _faults(rank: int, world_size: int) -> dict[str, tuple[str, float]]:
    """What each rank hears where the last one has NaN, or another width; and that they are in step again afterwards."""
    results: dict[str, tuple[str, float]] = {}
    faulty = world_size - 1
    for name, call in FAULTS.items():
        z = [x.detach() for x in _large(6, rank)]
        if rank == faulty:
            z[0][2, 1] = math.nan
        results[f"NaN | {name}"] = _answer(call, z)
        results[f"fine again | {name}"] = _answer(call, [x.detach() for x in _large(6, rank)])
        wide = [torch.cat([x, x], dim=1) if rank == faulty else x for x in (x.detach() for x in _large(6, rank))]
        if name != "memory bank" or world_size == 1:
            results[f"width | {name}"] = _answer(call, wide)
    zero = [x.detach() * (rank != 0) for x in _large(6, rank)]
    results["zero vectors on rank 0"] = _answer(LARGE["nt-xent"], zero)
    one_row = [x.detach()[:1] for x in _large(6, rank)]
    results["one row each"] = _answer(FAULTS["er joe"], one_row)
    return results


def _everything(rank: int, world_size: int) -> dict[str, Any]:
    faulthandler.dump_traceback_later(100, exit=True)  # a rank that waits for ever fails the tests instead
    assert dist.get_world_size() == world_size
    results = {
        "steps": _steps(rank, world_size),
        "memory": _memory(rank, world_size),
        "faults": _faults(rank, world_size),
    }
    faulthandler.cancel_dump_traceback_later()
    return results


@pytest.fixture(scope="module", params=[1, 2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    return on_ranks(request.param, _everything, folder)


# What is compared.


def _exact_step(name: str, batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The value and the gradients of one process, by the formula in float64."""
    network = Network(name, gather=False).double()
    batch = batch.double().requires_grad_()
    value = network.exact(batch)
    value.backward()
    assert batch.grad is not None
    return value.detach(), {**network.gradients(), "batch": batch.grad}


def _assert_close(found: Tensor, exact: Tensor, tolerance: float, what: str) -> None:
    error = float((found.double() - exact).norm())
    assert error <= tolerance * max(float(exact.norm()), 0.05), f"{what}: {found.tolist()} for {exact.tolist()}"


every_objective = pytest.mark.parametrize("name", OBJECTIVES)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@every_objective
def test_one_process_without_a_group_is_the_formula(name: str) -> None:
    batch = data(8)
    exact, exact_gradients = _exact_step(name, batch)
    network = Network(name, gather=True).double()
    network(batch.double()).backward()
    assert network(batch.double()).item() == pytest.approx(exact.item(), rel=1e-10)
    found = network.gradients()
    assert found.keys() == exact_gradients.keys() - {"batch"}
    for parameter, gradient in found.items():
        moves_all = parameter == "encoder.2.bias"  # by the same vector, to which differences are blind
        assert moves_all or gradient.norm() > 1e-4, f"{parameter}: a gradient near zero shows nothing"
        _assert_close(gradient, exact_gradients[parameter], 1e-10, parameter)


@every_dtype
@every_objective
def test_gathered_ranks_are_one_process_on_the_whole_batch(ranks: list[dict[str, Any]], name: str, dtype: torch.dtype) -> None:
    world_size = len(ranks)
    for sizes in GATHERED[world_size]:
        value, gradients = _exact_step(name, data(sum(sizes)))
        shares = gradients.pop("batch").split(sizes)
        for rank, own in enumerate(ranks):
            found = own["steps"][_key(name, dtype, sizes, True)]
            assert found["value"].dtype == dtype
            assert found["value"].item() == pytest.approx(value.item(), rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
            assert found.keys() == {*gradients, "value", "batch"}
            for parameter, gradient in gradients.items():
                _assert_close(found[parameter], gradient, TOLERANCE[dtype], f"{parameter} on rank {rank} of {sizes}")
            _assert_close(found["batch"], world_size * shares[rank], 4 * TOLERANCE[dtype], f"batch on rank {rank} of {sizes}")


@every_dtype
@every_objective
def test_ranks_that_do_not_gather_average_one_estimate_per_replica(
    ranks: list[dict[str, Any]], name: str, dtype: torch.dtype
) -> None:
    sizes = ALONE[len(ranks)]
    steps = [_exact_step(name, part) for part in data(sum(sizes)).split(sizes)]
    for rank, own in enumerate(ranks):
        found = own["steps"][_key(name, dtype, sizes, False)]
        value, gradients = steps[rank]
        assert found["value"].item() == pytest.approx(value.item(), rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
        for parameter in gradients.keys() - {"batch"}:
            mean = torch.stack([of_rank[parameter] for _, of_rank in steps]).mean(dim=0)
            _assert_close(found[parameter], mean, TOLERANCE[dtype], f"{parameter} on rank {rank}")


@every_objective
def test_the_two_ways_differ_where_rows_interact(ranks: list[dict[str, Any]], name: str) -> None:
    """Or the tests above could not tell a gathered loss from one that is silently local."""
    if len(ranks) == 1:
        pytest.skip("one rank has the whole batch")
    sizes = ALONE[len(ranks)]
    whole, gradients = _exact_step(name, data(sum(sizes)))
    steps = [_exact_step(name, part) for part in data(sum(sizes)).split(sizes)]
    assert all(abs(value.item() - whole.item()) > 1e-3 for value, _ in steps)
    for parameter in gradients.keys() - {"batch"}:
        mean = torch.stack([of_rank[parameter] for _, of_rank in steps]).mean(dim=0)
        assert (mean - gradients[parameter]).norm() > 1e-3 * gradients[parameter].norm()


@pytest.mark.parametrize("name", LARGE)
def test_no_rank_holds_its_rows_of_the_matrix(ranks: list[dict[str, Any]], name: str) -> None:
    sizes = _large_sizes(len(ranks))
    for rank, own in enumerate(ranks):
        held = own["memory"][name]
        assert held <= 8 * sum(sizes) * 2, (
            f"rank {rank} held {held} elements, its rows of the matrix are {sizes[rank] * sum(sizes)}"
        )


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_on_one_rank_is_heard_by_all_of_them_at_once(ranks: list[dict[str, Any]], name: str) -> None:
    for rank, own in enumerate(ranks):
        message, seconds = own["faults"][f"NaN | {name}"]
        assert seconds < 10
        if rank == len(ranks) - 1:
            assert "finite" in message, f"rank {rank}: {message!r}"
        else:
            assert f"rank {len(ranks) - 1}" in message, f"rank {rank}: {message!r}"
        assert own["faults"][f"fine again | {name}"][0] == ""


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("memory bank", "bank")])
def test_ranks_of_different_widths_refuse_each_other(ranks: list[dict[str, Any]], name: str) -> None:
    for rank, own in enumerate(ranks):
        message, seconds = own["faults"][f"width | {name}"]
        assert seconds < 10
        assert ("columns" in message) == (len(ranks) > 1), f"rank {rank}: {message!r}"


def test_zero_vectors_on_the_first_rank_are_reported_there_and_named_elsewhere(ranks: list[dict[str, Any]]) -> None:
    for rank, own in enumerate(ranks):
        message, seconds = own["faults"]["zero vectors on rank 0"]
        assert seconds < 10
        assert ("zero vector" if rank == 0 else "rank 0") in message


def test_one_row_on_each_rank_is_enough_where_together_they_are_two(ranks: list[dict[str, Any]]) -> None:
    for own in ranks:
        message, _ = own["faults"]["one row each"]
        assert ("at least 2 rows" in message) if len(ranks) == 1 else (message == "")
