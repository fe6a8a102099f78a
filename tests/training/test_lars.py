import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from entrec.training.lars import LARS
from entrec.training.parameters import parameter_groups

SHAPES = [(4, 3), (5,), (2, 3, 3, 3), (7, 2)]


def parameters(seed: int = 0, dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in SHAPES]


def set_gradients(params: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)


def written_out(params: list[Tensor], steps: int, adapt: list[bool], nesterov: bool, **how: float) -> list[Tensor]:
    """The algorithm with one number at a time outside of the tensors, and no optimizer."""
    moved = [nn.Parameter(p.detach().clone()) for p in params]
    buffers = [torch.zeros_like(p) for p in moved]
    for step in range(steps):
        set_gradients(moved, step)
        for i, p in enumerate(moved):
            assert p.grad is not None
            d = p.grad
            if adapt[i]:
                d = d + how["weight_decay"] * p.detach()
                d = d * how["trust"] * math.sqrt(float((p.detach() ** 2).sum())) / math.sqrt(float((d**2).sum()))
            buffers[i] = how["momentum"] * buffers[i] + d
            p.data -= how["lr"] * (d + how["momentum"] * buffers[i] if nesterov else buffers[i])
    return [p.detach() for p in moved]


def run(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        set_gradients(params, step)
        optimizer.step()


def apart(params: list[nn.Parameter], **others: Any) -> list[dict[str, Any]]:
    return [{"params": params[0::2]}, {"params": params[1::2], **others}]


@pytest.mark.parametrize("nesterov", [False, True])
def test_five_steps_are_the_algorithm_written_out(nesterov: bool) -> None:
    params = parameters()
    how: dict[str, Any] = {"lr": 0.7, "momentum": 0.9, "weight_decay": 0.05, "trust": 0.02}
    wanted = written_out(list(params), 5, [True, False, True, False], nesterov, **how)
    run(LARS(apart(params, adapt=False), nesterov=nesterov, **how), params, 5)
    torch.testing.assert_close([p.detach() for p in params], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_equals_timm_without_decay(nesterov: bool) -> None:
    """It divides by |g| + wd |p| + eps and we by |g + wd p|: the same where wd = 0 and eps = 0."""
    timm = pytest.importorskip("timm.optim")
    ours, theirs = parameters(), parameters()
    how: dict[str, Any] = {"lr": 0.3, "momentum": 0.9, "nesterov": nesterov}
    run(LARS(apart(ours, adapt=False), trust=0.01, **how), ours, 6)
    groups = apart(theirs, always_adapt=False)
    run(timm.Lars(groups, trust_coeff=0.01, eps=0.0, always_adapt=True, **how), theirs, 6)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_equals_timm_and_lightly_with_decay_where_the_gradient_is_parallel_to_the_parameter() -> None:
    """There |g| + wd |p| = |g + wd p|; lightly adapts exactly the groups that decay, as `parameter_groups` makes them."""
    timm, lightly = pytest.importorskip("timm.optim"), pytest.importorskip("lightly.utils.lars")
    sets = [parameters(), parameters(), parameters()]
    how: dict[str, Any] = {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.1}
    optimizers = [
        LARS(apart(sets[0], adapt=False), trust=0.01, **how),
        timm.Lars(apart(sets[1], weight_decay=0.0), trust_coeff=0.01, eps=0.0, **how),
        lightly.LARS(apart(sets[2], weight_decay=0.0), trust_coefficient=0.01, eps=0.0, **how),
    ]
    for params, optimizer in zip(sets, optimizers, strict=True):
        for step in range(6):
            for p in params:
                p.grad = p.detach() * (step + 0.5)
            optimizer.step()
    torch.testing.assert_close(sets[0], sets[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sets[0], sets[2], rtol=1e-12, atol=1e-12)


def test_without_adaptation_it_is_momentum_sgd() -> None:
    ours, theirs = parameters(), parameters()
    run(LARS(ours, lr=0.1, momentum=0.8, weight_decay=0.5, adapt=False), ours, 5)
    run(torch.optim.SGD(theirs, lr=0.1, momentum=0.8), theirs, 5)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_first_step_has_the_length_that_trust_says_whatever_the_gradient() -> None:
    for scale in (1e-18, 1.0, 1e15):
        params = parameters(dtype=torch.float32)
        before = copy.deepcopy(params)
        set_gradients(params, 0)
        for p in params:
            assert p.grad is not None
            p.grad *= scale
        LARS(params, lr=0.5, trust=0.01).step()
        for p, q in zip(params, before, strict=True):
            assert float((p - q).detach().norm()) == pytest.approx(0.5 * 0.01 * float(q.detach().norm()), rel=1e-3)


def test_every_parameter_with_a_gradient_moves_even_from_zero() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 2))
    for p in (*module[1].parameters(), *module[4].parameters()):  # a norm and biases, and a weight, which is adapted
        nn.init.zeros_(p)
    before = copy.deepcopy(list(module.parameters()))
    for p in module.parameters():
        p.grad = torch.randn_like(p)
    LARS(parameter_groups(module, 1e-6), lr=0.2).step()
    for p, q in zip(module.parameters(), before, strict=True):
        assert (p != q).all()


def test_parameters_without_gradient_and_gradients_themselves_are_left_alone() -> None:
    params = parameters()
    set_gradients(params, 0)
    params[2].grad = None
    before, gradients = copy.deepcopy(params), [None if p.grad is None else p.grad.clone() for p in params]
    optimizer = LARS(params, lr=0.1, weight_decay=0.1)
    optimizer.step()
    assert torch.equal(params[2], before[2])
    assert params[2] not in optimizer.state
    for p, gradient in zip(params, gradients, strict=True):
        assert (p.grad is None) == (gradient is None)
        assert gradient is None or (p.grad is not None and torch.equal(p.grad, gradient))


def test_a_zero_gradient_decays_and_stays_finite() -> None:
    p = nn.Parameter(torch.ones(3))
    p.grad = torch.zeros(3)
    LARS([p], lr=1.0, weight_decay=0.1, trust=0.01).step()
    torch.testing.assert_close(p.detach(), torch.full((3,), 0.99))
    q = nn.Parameter(torch.ones(3))
    q.grad = torch.zeros(3)
    LARS([q], lr=1.0).step()
    assert torch.equal(q.detach(), torch.ones(3))


def test_a_checkpoint_continues_bit_for_bit(tmp_path: Path) -> None:
    params = parameters(dtype=torch.float32)
    optimizer = LARS(apart(params, adapt=False), lr=0.3, weight_decay=0.01, nesterov=True)
    run(optimizer, params, 3)
    torch.save({"params": params, "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    run(optimizer, params, 3, start=3)
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = saved["params"]
    again = LARS(apart(resumed), lr=9.0)  # the saved settings win
    again.load_state_dict(saved["optimizer"])
    run(again, resumed, 3, start=3)
    assert all(torch.equal(p, q) for p, q in zip(params, resumed, strict=True))
    assert all(set(state) == {"momentum_buffer"} for state in again.state_dict()["state"].values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_follows_double(dtype: torch.dtype) -> None:
    half, double = parameters(dtype=dtype), parameters()
    for p, q in zip(half, double, strict=True):
        q.data = p.data.double()
    for step in range(3):
        set_gradients(half, step)
        for p, q in zip(half, double, strict=True):
            assert p.grad is not None
            p.grad *= 1e-2
            q.grad = p.grad.double()
        if step == 0:
            ours, theirs = LARS(half, lr=1.0, trust=0.1), LARS(double, lr=1.0, trust=0.1)
        ours.step()
        theirs.step()
    for p, q in zip(half, double, strict=True):
        assert p.dtype == dtype
        torch.testing.assert_close(p.double(), q, rtol=0.05, atol=0.05)


def test_a_ratio_that_half_precision_cannot_hold() -> None:
    p = nn.Parameter(torch.full((8,), 3e4, dtype=torch.float16))  # |p| = 8.5e4 is beyond float16, and so is |p| / |d|
    p.grad = torch.full((8,), 1e-6, dtype=torch.float16)
    LARS([p], lr=1.0, trust=0.1).step()
    torch.testing.assert_close(p.detach(), torch.full((8,), 2.7e4, dtype=torch.float16), rtol=0.01, atol=0)


def test_mixed_dtypes_in_one_group() -> None:
    mixed = [*parameters(), *parameters(dtype=torch.float32)]
    alone = parameters()
    for params in (mixed[:4], mixed[4:], alone):
        set_gradients(params, 0)
    LARS(mixed, lr=0.5, weight_decay=0.1).step()
    LARS(alone, lr=0.5, weight_decay=0.1).step()
    torch.testing.assert_close(mixed[:4], alone, rtol=0, atol=0)
    for p, q in zip(mixed[4:], alone, strict=True):
        torch.testing.assert_close(p.double(), q, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_rate_in_a_tensor_is_that_rate(shape: tuple[int, ...]) -> None:
    tensor, number = parameters(), parameters()
    rate = torch.full(shape, 0.25, dtype=torch.float64)
    optimizer = LARS(tensor, lr=rate, weight_decay=0.1)
    run(optimizer, tensor, 2)
    rate.fill_(0.125)  # as a schedule does between the replays of a graph
    run(optimizer, tensor, 2, start=2)
    other = LARS(number, lr=0.25, weight_decay=0.1)
    run(other, number, 2)
    other.param_groups[0]["lr"] = 0.125
    run(other, number, 2, start=2)
    torch.testing.assert_close(tensor, number, rtol=1e-12, atol=1e-12)


def test_closure_is_called_with_gradients_on_and_its_loss_returned() -> None:
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = LARS([p], lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return float(loss.detach())

    with torch.no_grad():
        assert optimizer.step(closure) == 5.0
    assert p.grad is not None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"lr": -1.0}, "lr must be at least 0, got -1.0"),
        ({"lr": math.nan}, "lr must be at least 0, got nan"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0, got -0.1"),
        ({"trust": 0.0}, "trust must be positive and finite, got 0.0"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov=True needs a momentum above 0"),
    ],
)
def test_settings_out_of_range(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LARS(parameters(), **({"lr": 0.1} | bad))
    with pytest.raises(ValueError, match=words):
        LARS([{"params": parameters(), **bad}], lr=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_step_is_the_eager_step() -> None:
    captured, eager = [[nn.Parameter(p.detach().cuda().float()) for p in parameters()] for _ in range(2)]
    for params in (captured, eager):
        for p in params:
            p.grad = p.detach() * 0.5 + 1
    rate = torch.tensor(0.2, device="cuda")
    graphed, plain = LARS(captured, lr=rate, weight_decay=0.1), LARS(eager, lr=0.2, weight_decay=0.1)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="before capturing"), torch.cuda.graph(graph):
        graphed.step()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        graphed.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graphed.step()
    plain.step()
    for new_rate in (0.2, 0.05):
        rate.fill_(new_rate)
        plain.param_groups[0]["lr"] = new_rate
        graph.replay()
        plain.step()
    torch.testing.assert_close(captured, eager)
