"""Our parts inside what others build: trainers, collections, optimisers, compiled steps with any batch size."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

import entrec
from entrec import Gaussian, VonMisesFisher, checks
from entrec.losses import DiscreteERLoss, ERLoss
from entrec.metrics import Alignment, EffectiveRank, KDEEntropy

VMF = VonMisesFisher(10.0)


def test_a_validation_pass_in_inference_mode_may_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_flags", checks._Flags())
    z = torch.randn(8, 4)
    with torch.inference_mode():
        ERLoss(VMF)(z, z)
    ERLoss(VMF, validate=False)(0 * z, z)
    with pytest.raises(ValueError, match="zero vector"):
        entrec.raise_if_invalid()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_teacher_may_give_the_codes(dtype: torch.dtype) -> None:
    logits = torch.randn(2, 16, 100)
    codes = (3 * torch.randn(2, 16, 100)).softmax(dim=-1)
    rounded = DiscreteERLoss()(*logits, targets=tuple(codes.to(dtype)))
    torch.testing.assert_close(rounded, DiscreteERLoss()(*logits, targets=tuple(codes)), rtol=0.02, atol=0.02)


def test_metrics_of_other_settings_stay_apart_in_a_collection() -> None:
    def metrics() -> dict[str, EffectiveRank | KDEEntropy]:
        return {"rank": EffectiveRank(max_samples=32), "entropy": KDEEntropy(VMF)}

    z = torch.randn(200, 6)
    together, alone = MetricCollection(dict(metrics())), metrics()
    for batch in z.split(16):
        together.update(batch)
        for metric in alone.values():
            metric.update(batch)
    with pytest.warns(UserWarning, match="max_samples=32"):
        torch.testing.assert_close(together.compute(), {name: metric.compute() for name, metric in alone.items()})


def test_alignments_of_other_exponents_stay_apart_in_a_collection() -> None:
    collection = MetricCollection({"one": Alignment(1.0), "two": Alignment(2.0)})
    z1, z2 = torch.randn(2, 32, 6)
    collection.update(z1, z1)  # both zero: a collection would let them share their state from here on
    collection.update(z1, z2)
    values = collection.compute()
    torch.testing.assert_close(values["one"], entrec.alignment(z1, z2, 1.0) / 2)
    torch.testing.assert_close(values["two"], entrec.alignment(z1, z2, 2.0) / 2)


def test_a_learnt_kappa_is_the_losss_own_parameter() -> None:
    kappa = nn.Parameter(torch.tensor(10.0))
    loss = ERLoss(VonMisesFisher(kappa), Gaussian(nn.Parameter(torch.tensor(1.0))))
    assert {name for name, _ in loss.named_parameters()} == {"density_kappa", "kernel_sigma"}
    optimiser = torch.optim.SGD(loss.parameters(), lr=0.1)
    loss(torch.randn(8, 4), torch.randn(8, 4)).backward()
    optimiser.step()
    assert kappa.item() != 10.0
    again = ERLoss(VonMisesFisher(nn.Parameter(torch.tensor(1.0))), Gaussian(nn.Parameter(torch.tensor(2.0))))
    again.load_state_dict(loss.state_dict())
    assert again.state_dict()["density_kappa"].item() == kappa.item()


@pytest.mark.parametrize("role", ["density", "kernel"])
def test_a_parameter_that_training_drove_below_zero_is_refused_in_either_role(role: str) -> None:
    kappa = nn.Parameter(torch.tensor(1.0))
    learnt = VonMisesFisher(kappa)
    loss = ERLoss(learnt, VMF) if role == "density" else ERLoss(VMF, learnt)
    with torch.no_grad():
        kappa.sub_(2.0)
    with pytest.raises(ValueError, match="kappa must be positive and finite, got -1"):
        loss(torch.randn(8, 4), torch.randn(8, 4))


def test_a_parameter_of_one_element_leaves_scalars_scalar() -> None:
    z = torch.randn(8, 4)
    for density in (VonMisesFisher(torch.ones(1)), Gaussian(torch.ones(1, 1))):
        assert entrec.kde_entropy(z, density).shape == ()
        assert ERLoss(density)(z, z).shape == ()


@pytest.mark.parametrize("loss", [ERLoss(VMF), ERLoss(Gaussian(1.0)), DiscreteERLoss()], ids=["sphere", "gaussian", "discrete"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_any_number_of_batch_sizes_needs_two_graphs(loss: nn.Module, dynamic: bool | None) -> None:
    graphs = 0

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        nonlocal graphs
        graphs += 1
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend=backend, dynamic=dynamic)
    for k in (8, 9, 12, 20, 33):
        a, b = torch.randn(2, k, 16)
        torch.testing.assert_close(compiled(a, b), loss(a, b))
    assert graphs <= 2
