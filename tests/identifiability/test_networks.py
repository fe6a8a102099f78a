import numpy as np
import pytest
import torch
from torch import Generator

from entrec.identifiability import Box, Encoder, Mixing, Sphere, Unbounded
from entrec.identifiability.networks import networks


def data(rows: int = 64, dim: int = 4) -> torch.Tensor:
    return torch.randn(rows, dim, generator=Generator().manual_seed(1))


@pytest.mark.parametrize("dim", [2, 10])
def test_the_mixing_can_be_undone(dim: int) -> None:
    mixing = Mixing(dim, Generator().manual_seed(0), draws=2000)
    z = data(1000, dim)
    exact = mixing.double()(z.double())
    assert ((mixing.inverse(exact) - z).norm(dim=1) / z.norm(dim=1)).max() < 1e-6
    rounded = mixing.float()(z)
    assert ((mixing.inverse(rounded) - z).norm(dim=1) / z.norm(dim=1)).max() < 1e-5  # of float32 data
    linear = np.linalg.lstsq(z.numpy(), rounded.numpy(), rcond=None)[0]
    assert np.abs(z.numpy() @ linear - rounded.numpy()).mean() > 0.05  # and is no linear map


def test_each_weight_is_the_best_conditioned_of_its_draws() -> None:
    weights = Mixing(3, Generator().manual_seed(0), layers=2, draws=200).weights
    stream = Generator().manual_seed(0)
    for weight in weights:
        drawn = [
            x / np.linalg.norm(x, axis=0)
            for x in (2 * torch.rand(200, 3, 3, generator=stream, dtype=torch.float64) - 1).numpy()
        ]
        best = min(drawn, key=np.linalg.cond)
        np.testing.assert_allclose(weight, best, rtol=1e-6)
    torch.testing.assert_close(weights.norm(dim=1), torch.ones(2, 3))


def test_more_draws_than_are_looked_at_at_once_condition_no_worse() -> None:
    few, many = (Mixing(4, Generator().manual_seed(0), layers=1, draws=n).weights[0] for n in (4096, 20_000))
    assert np.linalg.cond(many) < np.linalg.cond(few)


@pytest.mark.parametrize("slope", [0.0, -0.1, 1.5])
def test_a_mixing_that_could_not_be_undone_is_refused(slope: float) -> None:
    with pytest.raises(ValueError, match="slope must be above 0"):
        Mixing(3, Generator(), slope=slope, draws=1)


def test_the_encoder_has_the_papers_widths() -> None:
    assert [tuple(x.weight.shape) for x in Encoder(10, Sphere(10)).layers] == [  # type: ignore[arg-type]
        (100, 10), (500, 100), (500, 500), (500, 500), (500, 500), (100, 500), (10, 100),
    ]  # fmt: skip


def test_projections_lie_in_the_output_space() -> None:
    x = 100 * data()
    torch.testing.assert_close(Encoder(4, Sphere(4), 10)(x).norm(dim=1), torch.ones(64))
    box = Encoder(4, Box(3, -1.0, 2.0), 10)(x)
    assert box.shape == (64, 3)
    assert box.min() > -1
    assert box.max() < 2
    free = Encoder(4, Unbounded(4), 10)
    torch.nn.init.constant_(free.layers[-1].bias, 50.0)  # type: ignore[arg-type]
    assert free(x).min() > 10


def test_bounds_of_a_box_are_learnt_unless_they_are_not_to_be() -> None:
    learnt, fixed = Encoder(4, Box(4), 10), Encoder(4, Box(4), 10, learnt_bounds=False)
    for encoder in (learnt, fixed):
        encoder(data()).sum().backward()
    assert learnt.low.grad is not None
    assert learnt.high.grad is not None
    assert (learnt.high.grad > 0).all()
    assert fixed.low.grad is None
    assert fixed.high.grad is None


def test_autocast_narrows_the_layers_but_the_last() -> None:
    encoder = Encoder(4, Unbounded(4), 10)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = encoder(data())
    assert narrow.dtype == torch.float32
    assert not torch.equal(narrow, encoder(data()))
    assert not torch.equal(narrow, narrow.bfloat16().float())
    torch.testing.assert_close(narrow, encoder(data()), atol=0.02, rtol=0.02)


def test_networks_belong_to_their_seed_and_leave_pytorchs_generator_alone() -> None:
    before = torch.get_rng_state()
    (mixing, encoder), (again, too), (other, else_) = (networks(seed, 3, Sphere(3), 5, 10) for seed in (7, 7, 8))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(mixing.weights, again.weights)
    assert not torch.equal(mixing.weights, other.weights)
    for a, b, c in zip(encoder.parameters(), too.parameters(), else_.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_padding_changes_neither_what_an_encoder_finds_nor_how_it_learns() -> None:
    _, plain = networks(0, 3, Sphere(3), 5, 10)
    _, padded = networks(0, 3, Sphere(3), 5, 10)
    padded.pad(64)
    assert [tuple(x.shape) for name, x in padded.named_parameters() if name.endswith("weight")] == [
        (64, 3),
        *[(64, 64)] * 5,
        (3, 64),
    ]
    assert padded.widths == plain.widths
    adams = [torch.optim.Adam(encoder.parameters(), 1e-2) for encoder in (plain, padded)]
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    for _ in range(10):
        found = [encoder(x) for encoder in (plain, padded)]
        torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)
        for adam, z in zip(adams, found, strict=True):
            adam.zero_grad()
            (z**3).sum().backward()
            adam.step()
    for a, b in zip(plain.parameters(), padded.parameters(), strict=True):
        own = tuple(map(slice, a.shape))
        torch.testing.assert_close(b[own], a, atol=1e-5, rtol=1e-4)
        added = torch.ones(b.shape, dtype=torch.bool)
        added[own] = False
        assert not b[added].any()
