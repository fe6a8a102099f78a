import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from entrec import VonMisesFisher
from entrec.identifiability import Experiment, Latents, Sphere, infonce_loss
from entrec.identifiability.experiment import _AHEAD, _SCALES, Draws, _computing, device_for, device_name, rates_of
from entrec.identifiability.networks import networks

LATENTS = Latents(Sphere(3), None, VonMisesFisher(10.0))
LOSS = partial(infonce_loss, density=VonMisesFisher(1.0))
CPU = torch.device("cpu")


def experiment(rate: float = 1e-3, loss: Any = LOSS) -> Experiment:
    mixing, encoder = networks(0, 3, Sphere(3), 5, 10)
    return Experiment(Draws(LATENTS.pairs, 32, Generator().manual_seed(1)), mixing, encoder, loss, lambda step: rate)


def test_steps_are_those_of_a_plain_loop() -> None:
    ours = experiment()
    losses = [moment.loss for moment in ours.run(5, 1)]
    mixing, encoder = networks(0, 3, Sphere(3), 5, 10)
    draws, adam = Generator().manual_seed(1), torch.optim.Adam(encoder.parameters(), 1e-3)
    drawn = [z.split(32) for z in LATENTS.pairs(32 * _AHEAD, draws)]  # for many steps at once
    for loss, z1, z2 in zip(losses, *drawn, strict=False):
        expected = LOSS(encoder(mixing(z1)), encoder(mixing(z2)))
        assert loss == pytest.approx(expected.item(), rel=1e-4)
        adam.zero_grad()
        expected.backward()
        adam.step()
    for a, b in zip(ours.encoder.parameters(), encoder.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    z = LATENTS.sample(8, Generator())
    torch.testing.assert_close(ours.project(z), encoder(mixing(z)).detach(), atol=1e-3, rtol=1e-3)


def test_losses_in_float16_are_scaled_and_steps_are_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = experiment()
    monkeypatch.setitem(_SCALES, "32", _SCALES["fp16"])
    scaled = experiment()
    assert (plain.scale, scaled.scale) == (1, _SCALES["fp16"])
    assert [moment.loss for moment in scaled.run(5, 1)] == [moment.loss for moment in plain.run(5, 1)]
    for a, b in zip(scaled.encoder.parameters(), plain.encoder.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.equal(a.grad, _SCALES["fp16"] * b.grad)
        # Adam's roots are rounded once more or less.
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-5)


def test_the_rate_is_that_of_the_first_step_whose_data_were_drawn_with_it() -> None:
    ours, asked = experiment(), []

    def rates(step: int) -> float:
        asked.append(step)
        return 1e-3 if step < _AHEAD else 0.0

    ours.rates = rates
    list(ours.run(_AHEAD, _AHEAD))
    before = [p.detach().clone() for p in ours.encoder.parameters()]
    list(ours.run(3, 3))
    assert asked == [0, _AHEAD]
    for a, b in zip(ours.encoder.parameters(), before, strict=True):
        assert torch.equal(a, b)  # Adam has momentum, and no rate any more
    assert not torch.equal(before[0], next(experiment().encoder.parameters()))


def test_rates() -> None:
    assert {rates_of("constant", 2e-4, 1000)(step) for step in (0, 500, 999)} == {2e-4}
    cosine = [rates_of("cosine", 2e-4, 1000)(step) for step in range(1000)]
    assert max(cosine) == cosine[19] == 2e-4  # the last step of the first fiftieth
    assert cosine[9] == pytest.approx(1e-4)
    assert cosine[-1] == 0
    assert cosine[19:] == sorted(cosine[19:], reverse=True)
    assert sum(cosine[19:]) / len(cosine[19:]) == pytest.approx(1e-4, rel=1e-2)


def test_moments_come_every_few_steps_and_at_the_end() -> None:
    ours = experiment()
    assert [moment.step for moment in ours.run(7, 3)] == [3, 6, 7]
    assert ours.seconds > 0


def test_a_run_ends_where_its_loss_is_no_number() -> None:
    calls = 0

    def broken(z1: Tensor, z2: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return LOSS(z1, z2) * (math.nan if calls > 2 else 1.0)

    moments = list(experiment(loss=broken).run(100, 2))
    assert [moment.step for moment in moments] == [2, 4]
    assert math.isfinite(moments[0].loss)
    assert math.isnan(moments[1].loss)


def test_projections_have_no_graph() -> None:
    assert not experiment().project(LATENTS.sample(4, Generator())).requires_grad


@pytest.mark.parametrize("precision", ["32", "tf32", "fp16", "bf16"])
def test_the_precision_of_products_is_as_it_was_afterwards(precision: Any) -> None:
    def now() -> Any:
        products: Any = torch.backends.cuda.matmul
        return products.fp32_precision if hasattr(products, "fp32_precision") else products.allow_tf32

    before = now()
    with _computing(CPU, precision):
        assert now() in (("tf32", True) if precision == "tf32" else ("ieee", False))
    assert now() == before


@pytest.mark.parametrize(
    ("name", "precision", "said"),
    [
        ("gpu", "32", "device must be 'cpu', 'cuda'"),
        ("cdua", "32", "did you mean 'cuda'"),
        ("cuda:x", "32", "device must be"),
        ("cuda:99", "32", "needs a GPU that PyTorch can use"),
        ("cpu", "tf32", "precision tf32 needs a GPU"),
        ("cpu", "fp16", "precision fp16 needs a GPU"),
        ("cpu", "bf16", "precision bf16 needs a GPU"),
    ],
)
def test_devices_that_cannot_be_used_are_refused(name: str, precision: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        device_for(name, precision)


def test_a_cpu_is_always_there() -> None:
    assert device_for("cpu") == CPU
    assert device_name(CPU) == "CPU"
    assert device_for("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
