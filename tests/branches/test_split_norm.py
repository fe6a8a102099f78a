"""BatchNorm of parts of a batch: each part's is BatchNorm's own, and so is what is kept on disk."""

import pytest
import torch
from torch import Tensor, nn

from entrec.branches.split_norm import SplitBatchNorm2d, interleave_splits, split_norms
from entrec.branches.tiny import Tiny


def rows(k: int = 12) -> Tensor:
    return torch.randn(k, 5, 3, 4, generator=torch.Generator().manual_seed(0)) * 3 + 2


def learnt(splits: int = 3) -> SplitBatchNorm2d:
    norm = SplitBatchNorm2d(5, splits)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 5))
        norm.bias.copy_(torch.linspace(-1, 1, 5))
    return norm


def plain(norm: SplitBatchNorm2d) -> nn.BatchNorm2d:
    found = nn.BatchNorm2d(5)
    found.load_state_dict(norm.state_dict())
    return found


@pytest.mark.parametrize("interleaved", [False, True])
def test_each_part_is_normalised_as_batchnorm_does_it(interleaved: bool) -> None:
    norm, x = learnt(), rows().requires_grad_()
    norm.interleaved = interleaved
    other, y = plain(norm), rows().requires_grad_()
    found = norm(x)
    places = torch.arange(12).reshape(4, 3).T if interleaved else torch.arange(12).reshape(3, 4)
    wanted = torch.cat([other(y[part]) for part in places])[places.flatten().argsort()]
    assert torch.allclose(found, wanted, atol=1e-5)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert torch.allclose(x.grad, y.grad, atol=1e-5)


def test_running_statistics_are_lightlys() -> None:
    batchnorm = pytest.importorskip("lightly.models.batchnorm", reason="lightly is not installed")
    norm, theirs = learnt(), batchnorm.SplitBatchNorm(5, 3)
    norm.interleaved = True  # as theirs cuts a batch
    with torch.no_grad():
        theirs.weight.copy_(norm.weight)
        theirs.bias.copy_(norm.bias)
    for x in (rows(), rows() + 1):
        assert torch.allclose(norm(x), theirs(x), atol=1e-5)
    assert torch.allclose(norm.eval()(rows()), theirs.eval()(rows()), atol=1e-5)


def test_it_compiles_to_one_graph() -> None:
    norm, other = learnt(), learnt()
    compiled = torch.compile(norm, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(rows()), other(rows()), atol=1e-6)
    assert norm.running_var is not None
    assert other.running_var is not None
    assert torch.allclose(norm.running_var, other.running_var)


def test_in_eval_mode_it_is_batchnorm() -> None:
    norm = learnt().eval()
    assert torch.equal(norm(rows(7)), plain(norm).eval()(rows(7)))


def test_half_precision_stays_so_and_is_computed_in_full() -> None:
    x = rows().bfloat16()
    found = learnt()(x)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, learnt()(x.float()).bfloat16())


def test_a_network_keeps_its_state_and_its_teacher_takes_the_other_parts() -> None:
    encoder = Tiny()
    before = {name: x.clone() for name, x in encoder.state_dict().items()}
    split_norms(encoder, 4)
    assert encoder.state_dict().keys() == before.keys()
    assert all(torch.equal(x, before[name]) for name, x in encoder.state_dict().items())
    norms = [part for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)]
    assert all(type(part) is SplitBatchNorm2d and not part.interleaved for part in norms)
    interleave_splits(encoder)
    assert all(isinstance(part, SplitBatchNorm2d) and part.interleaved for part in norms)


def test_one_split_changes_nothing() -> None:
    encoder = Tiny()
    split_norms(encoder, 1)
    assert not any(isinstance(part, SplitBatchNorm2d) for part in encoder.modules())


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of the 3 splits of BatchNorm, got 10 rows"):
        learnt()(rows(10))
    with pytest.raises(ValueError, match="splits=2 needs an encoder of plain BatchNorm2d layers, and Linear is none"):
        split_norms(nn.Linear(2, 2), 2)
