import copy

import pytest
import torch
from torch import nn

from entrec.branches import DINOHead, Prototypes, mlp


def kinds(module: nn.Sequential) -> list[str]:
    return [type(part).__name__ for part in module]


def test_mlp_is_linear_batchnorm_relu_and_ends_linear() -> None:
    block = ["Linear", "BatchNorm1d", "ReLU"]
    assert kinds(mlp(4, 6, 3)) == [*block, "Linear"]
    assert kinds(mlp(4, 6, 3, layers=3)) == [*block, *block, "Linear"]
    assert kinds(mlp(4, 6, 3, layers=1)) == ["Linear"]
    assert kinds(mlp(4, 6, 3, norm_last=True)) == [*block, "Linear", "BatchNorm1d"]
    assert mlp(4, 6, 3, layers=3)(torch.randn(5, 4)).shape == (5, 3)


def test_a_linear_map_before_a_batchnorm_has_no_bias() -> None:
    def biases(module: nn.Sequential) -> list[bool]:
        return [part.bias is not None for part in module if isinstance(part, nn.Linear)]

    assert biases(mlp(4, 6, 3)) == [False, True]
    assert biases(mlp(4, 6, 3, bias_last=False)) == [False, False]
    assert biases(mlp(4, 6, 3, norm_last=True)) == [False, False]


def test_a_normalised_end_has_mean_zero_and_variance_one() -> None:
    z = mlp(4, 32, 3, norm_last=True)(torch.randn(64, 4))
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(z.var(dim=0, unbiased=False), torch.ones(3), rtol=1e-2, atol=1e-2)
    assert "4.weight" not in mlp(4, 32, 3, norm_last=True).state_dict()


def test_dino_logits_are_the_cosines_of_bottleneck_and_directions() -> None:
    head = DINOHead(8, hidden=16, bottleneck=4, out=10)
    x = torch.randn(5, 8)
    z, logits = head(x)
    torch.testing.assert_close(z, head.bottleneck(x))
    torch.testing.assert_close(z.norm(dim=1), torch.ones(5))
    expected = [[torch.cosine_similarity(z[i], head.last.weight[w], dim=0).item() for w in range(10)] for i in range(5)]
    torch.testing.assert_close(logits, torch.tensor(expected))


def test_dino_gains_are_fixed_so_scaling_the_last_weights_changes_nothing() -> None:
    head, x = DINOHead(8, 16, 4, 10), torch.randn(5, 8)
    before = head(x).logits
    with torch.no_grad():
        head.last.weight.mul_(3.0)
    torch.testing.assert_close(head(x).logits, before)


def test_dino_head_is_what_its_reference_builds_from_weight_norm() -> None:
    head, x = DINOHead(8, 16, 4, 10), torch.randn(5, 8)
    last = nn.utils.parametrizations.weight_norm(nn.Linear(4, 10, bias=False))
    last.parametrizations.weight.original0.data.fill_(1.0)
    last.parametrizations.weight.original1.data.copy_(head.last.weight.data)
    torch.testing.assert_close(last(head.bottleneck(x)), head(x).logits)


def test_dino_starts_at_truncated_normals_of_deviation_two_hundredths() -> None:
    head = DINOHead(64, hidden=256, bottleneck=64, out=512)
    linear = [part for part in head.modules() if isinstance(part, nn.Linear)]
    assert len(linear) == 4
    for part in linear:
        assert part.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert part.bias is None or (part.bias == 0).all()


@pytest.mark.parametrize("make", [lambda: DINOHead(8, 16, 4, 10), lambda: mlp(8, 16, 4), lambda: Prototypes(8, 5)])
def test_copies_and_checkpoints_give_the_same(make: type[nn.Module]) -> None:
    module, x = make(), torch.randn(6, 8)
    (module(x)[-1]).square().sum().backward()  # a copy of a used module, as a teacher is
    again = make()
    again.load_state_dict(module.state_dict(), strict=True)
    for other in (copy.deepcopy(module), again):
        other.eval()
        torch.testing.assert_close(other(x), module.eval()(x), rtol=0, atol=0)
        assert not {p.data_ptr() for p in other.parameters()} & {p.data_ptr() for p in module.parameters()}


def test_prototypes_give_cosines_and_return_to_the_sphere() -> None:
    prototypes, x = Prototypes(4, 6), 5 * torch.randn(3, 4)
    torch.testing.assert_close(prototypes.weight.norm(dim=1), torch.ones(6))
    expected = torch.cosine_similarity(x[:, None], prototypes.weight[None], dim=-1)
    torch.testing.assert_close(prototypes(x), expected)
    optimiser = torch.optim.SGD(prototypes.parameters(), lr=1.0)
    prototypes(x).square().sum().backward()
    optimiser.step()
    moved = prototypes.weight.detach().clone()
    assert (moved.norm(dim=1) - 1).abs().max() > 0.01
    prototypes.normalise_()
    torch.testing.assert_close(prototypes.weight.detach(), moved / moved.norm(dim=1, keepdim=True))
    assert prototypes.weight.requires_grad


def test_half_precision_is_normalised_in_full() -> None:
    head = DINOHead(8, 16, 4, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z, _ = head(torch.randn(5, 8))
    assert z.dtype == torch.float32
    torch.testing.assert_close(z.norm(dim=1), torch.ones(5))
    tiny = torch.full((2, 8), 1e-4, dtype=torch.float16)  # its squares are nothing in float16
    prototypes = Prototypes(8, 5)
    torch.testing.assert_close(prototypes(tiny), prototypes(torch.ones(2, 8)))


@pytest.mark.parametrize("make", [lambda: mlp(0, 4, 4), lambda: mlp(4, 4, 4, layers=0), lambda: Prototypes(4, 0)])
def test_bad_sizes_are_refused(make: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        make()
    with pytest.raises(ValueError, match="bottleneck must be at least 1, got 0"):
        DINOHead(4, 4, 0, 4)


@pytest.mark.parametrize("head", [DINOHead(6, 8, 5, 16), Prototypes(6, 16)], ids=["dino", "prototypes"])
def test_cosines_are_float32_under_autocast(head: DINOHead | Prototypes) -> None:
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        found = head(x)
    logits = found if isinstance(found, torch.Tensor) else found.logits
    assert logits.dtype == torch.float32
    directions = head.weight if isinstance(head, Prototypes) else nn.functional.normalize(head.last.weight, dim=1)
    points = nn.functional.normalize(x, dim=1) if isinstance(found, torch.Tensor) else found.bottleneck
    torch.testing.assert_close(logits, points @ directions.T)


def test_dinos_head_may_have_norms_whose_maps_have_no_bias() -> None:
    head = DINOHead(6, 8, 5, 16, norm=True)
    assert kinds(head.network) == ["Linear", "BatchNorm1d", "GELU", "Linear", "BatchNorm1d", "GELU", "Linear"]
    assert [part.bias is None for part in head.network if isinstance(part, nn.Linear)] == [True, True, False]
