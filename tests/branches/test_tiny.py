import copy

import pytest
import torch
from torch import Tensor, nn

from entrec.branches import Tiny


def multiply_adds(module: nn.Module, images: Tensor) -> int:
    """Of all convolutions: each output times the weights that it sums over."""
    counted = 0

    def count(part: nn.Module, _: object, output: Tensor) -> None:
        nonlocal counted
        assert isinstance(part, nn.Conv2d)
        counted += output[0].numel() * part.weight[0].numel()

    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(count)
    with torch.no_grad():
        module(images)
    return counted


def test_it_costs_what_its_docstring_says() -> None:
    module = Tiny()
    assert sum(p.numel() for p in module.parameters()) == pytest.approx(0.34e6, rel=0.01)
    assert multiply_adds(module, torch.zeros(2, 3, 32, 32)) == pytest.approx(12.8e6, rel=0.01)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 9), (4, 32), (3, 33), (2, 96)])
def test_any_channels_and_any_side_from_8_on(channels: int, size: int) -> None:
    features = Tiny(channels)(torch.randn(3, channels, size, size))
    assert features.shape == (3, Tiny.width)
    assert torch.isfinite(features).all()
    assert (features >= 0).all()


def test_every_parameter_gets_a_gradient_and_images_of_one_batch_differ() -> None:
    module = Tiny()
    features = module(torch.randn(8, 3, 32, 32))
    assert features.std(dim=0).mean() > 0.01
    features.square().sum().backward()
    for name, p in module.named_parameters():
        assert p.grad is not None, name
        assert p.grad.norm() > 0, name


def test_in_eval_mode_a_row_depends_on_itself_alone_and_buffers_stay() -> None:
    module = Tiny()
    x = torch.randn(6, 3, 32, 32)
    module(x)
    module.eval()
    before = copy.deepcopy(module.state_dict())
    torch.testing.assert_close(module(x)[:2], module(x[:2]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


def test_memory_format_of_the_images_changes_nothing() -> None:
    module, x = Tiny().eval(), torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(module(x.contiguous(memory_format=torch.channels_last)), module(x))


def test_a_number_of_channels_is_refused_if_it_is_none() -> None:
    with pytest.raises(ValueError, match="channels must be at least 1, got 0"):
        Tiny(0)
