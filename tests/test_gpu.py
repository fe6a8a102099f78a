"""What only a GPU can show: agreement with the CPU's float64, and steps that never wait for the device."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import entrec
from entrec import Density, Gaussian, GeneralizedNormal, Laplace, VonMisesFisher
from entrec.losses import DiscreteERLoss, ERLoss
from entrec.metrics import KDEEntropy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DENSITIES = [VonMisesFisher(10.0), Gaussian(0.7), Laplace(1.3), GeneralizedNormal(1.5, 0.8)]


@pytest.fixture
def no_synchronisation() -> Iterator[None]:
    """Any wait for the device is an error."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def _gradient(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = function(*leaves)
    value.backward()
    return value.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)


@pytest.mark.parametrize("density", DENSITIES, ids=repr)
@pytest.mark.parametrize("leave_one_out", [True, False])
def test_values_and_gradients_agree_with_the_cpus_float64(density: Density, leave_one_out: bool) -> None:
    z1, z2 = torch.randn(2, 300, 16, dtype=torch.float64)

    def bound(a: Tensor, b: Tensor) -> Tensor:
        bound = entrec.er_bound(a, b, density, leave_one_out=leave_one_out, precision="ieee").value
        return bound + entrec.infonce_bound(a, b, density, precision="ieee")

    expected = _gradient(bound, z1, z2)
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
        measured = _gradient(bound, z1.to("cuda", dtype), z2.to("cuda", dtype))
        for a, b in zip(measured, expected, strict=True):
            assert (a.cpu().double() - b).norm() <= tolerance * b.norm()


@pytest.mark.parametrize("loss", [ERLoss(VonMisesFisher(10.0), validate=False), ERLoss(Gaussian(1.0), validate=False)])
@pytest.mark.usefixtures("no_synchronisation")
def test_an_unvalidated_step_never_waits(loss: ERLoss) -> None:
    z1, z2 = torch.randn(2, 128, 32, device="cuda")
    _gradient(loss, z1, z2)


@pytest.mark.usefixtures("no_synchronisation")
def test_an_unvalidated_discrete_step_never_waits() -> None:
    logits1, logits2 = torch.randn(2, 128, 32, device="cuda")
    _gradient(DiscreteERLoss(validate=False), logits1, logits2)


def test_a_captured_step_reports_bad_values_at_the_next_log_point() -> None:
    loss = ERLoss(VonMisesFisher(10.0))
    z1, z2 = (torch.randn(64, 8, device="cuda", requires_grad=True) for _ in range(2))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        loss(z1, z2).backward()
    torch.cuda.current_stream().wait_stream(stream)
    z1.grad = z2.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(z1, z2)
        value.backward()
    graph.replay()
    entrec.raise_if_invalid()
    torch.testing.assert_close(value, loss(z1, z2))
    with torch.no_grad():
        z1[3, 2] = float("nan")
    graph.replay()
    with pytest.raises(ValueError, match="NaN or infinity"):
        entrec.raise_if_invalid()
    entrec.raise_if_invalid()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_losses_give_the_same_numbers_and_report_bad_values(mode: str) -> None:
    torch._dynamo.reset()
    loss = ERLoss(VonMisesFisher(10.0))
    compiled = torch.compile(loss, fullgraph=True, mode=mode)
    z1, z2 = torch.randn(2, 128, 32, device="cuda")
    for _ in range(3):
        for a, b in zip(_gradient(compiled, z1, z2), _gradient(loss, z1, z2), strict=True):
            torch.testing.assert_close(a.clone(), b, rtol=1e-4, atol=1e-6)
    entrec.raise_if_invalid()
    z1[0] = 0
    compiled(z1, z2)
    with pytest.raises(ValueError, match="zero vector"):
        entrec.raise_if_invalid()


def test_graph_capture_is_not_given_up_for_the_flag() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(ERLoss(VonMisesFisher(10.0)), fullgraph=True, mode="reduce-overhead")
    z1, z2 = torch.randn(2, 128, 32, device="cuda")
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        _gradient(compiled, z1, z2)
    assert counters["inductor"]["cudagraph_skips"] == 0


def test_metrics_live_on_the_gpu() -> None:
    z = torch.randn(500, 8)
    here, there = KDEEntropy(VonMisesFisher(10.0)), KDEEntropy(VonMisesFisher(10.0)).to("cuda")
    for batch in z.split(64):
        here.update(batch)
        there.update(batch.cuda())
    torch.testing.assert_close(there.compute().cpu(), here.compute(), rtol=1e-5, atol=1e-5)


def test_half_precision_inputs_under_autocast_are_computed_in_float32() -> None:
    z1, z2 = torch.randn(2, 128, 32, device="cuda").half()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        value, *gradients = _gradient(ERLoss(VonMisesFisher(10.0)), z1, z2)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, ERLoss(VonMisesFisher(10.0))(z1.float(), z2.float()))
    assert all(torch.isfinite(g).all() for g in gradients)


def test_a_parameter_on_the_cpu_serves_points_on_the_gpu() -> None:
    kappa = torch.tensor(10.0, requires_grad=True)
    z1, z2 = torch.randn(2, 64, 8, device="cuda")
    value = ERLoss(VonMisesFisher(kappa), kernel=VonMisesFisher(5.0))(z1, z2)
    torch.testing.assert_close(value, ERLoss(VonMisesFisher(10.0), kernel=VonMisesFisher(5.0))(z1, z2))
    value.backward()
    assert kappa.grad is not None
    with torch.no_grad():
        kappa.neg_()
    with pytest.raises(ValueError, match="kappa must be positive"):
        ERLoss(VonMisesFisher(5.0), kernel=_unchecked(kappa))(z1, z2)


def _unchecked(kappa: Tensor) -> VonMisesFisher:
    """A density whose parameter was driven out of range after it was made."""
    density = VonMisesFisher(torch.tensor(1.0))
    object.__setattr__(density, "kappa", kappa)
    return density


def test_a_learnt_kappa_on_the_gpu_has_the_cpus_gradient() -> None:
    def loss(kappa: Tensor) -> Tensor:
        value = VonMisesFisher(kappa).log_normalizer(64)
        assert isinstance(value, Tensor)
        return value

    on_cpu = _gradient(loss, torch.tensor(7.0, dtype=torch.float64))
    on_gpu = _gradient(loss, torch.tensor(7.0, dtype=torch.float64, device="cuda"))
    for a, b in zip(on_gpu, on_cpu, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-12, atol=0)
