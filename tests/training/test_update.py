"""An optimiser's memory, taken over from another device."""

from typing import Any

import pytest
import torch
from torch import nn

from entrec.training.assemble import _sgd
from entrec.training.lars import LARS
from entrec.training.update import _load


def optimizer_of(name: str, model: nn.Module, lr: Any) -> torch.optim.Optimizer:
    makers: dict[str, Any] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "lars": LARS}
    return makers[name](model.parameters(), lr, **({} if name == "adamw" else {"momentum": 0.9}))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["adamw", "sgd", "lars"])
def test_memory_lies_as_the_parameters_do(name: str) -> None:
    here, there = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    ours, theirs = optimizer_of(name, here, 0.1), optimizer_of(name, there, torch.tensor(0.1))
    here(torch.randn(2, 3, 8, 8)).square().mean().backward()
    ours.step()
    _load(theirs, ours.state_dict())
    weight, found = there.weight, theirs.state[there.weight]
    tensors = {key: x for key, x in found.items() if isinstance(x, torch.Tensor) and x.shape == weight.shape}
    assert tensors
    for key, x in tensors.items():
        assert x.stride() == weight.stride()
        assert torch.equal(x, ours.state[here.weight][key])


def test_the_rate_and_the_form_stay_the_devices_own() -> None:
    model = nn.Linear(2, 2)
    ours, theirs = optimizer_of("adamw", model, 0.1), optimizer_of("adamw", model, torch.tensor(0.3))
    theirs.param_groups[0]["capturable"] = True
    model(torch.randn(4, 2)).sum().backward()
    ours.step()
    _load(theirs, ours.state_dict())
    (group,) = theirs.param_groups
    assert isinstance(group["lr"], torch.Tensor)
    assert group["capturable"]
    assert group["weight_decay"] == ours.param_groups[0]["weight_decay"]


def test_a_parameter_that_begins_to_learn_later_has_plain_sgds_steps() -> None:
    """As SwAV's prototypes do; PyTorch's fused SGD wants the momenta of all parameters or of none."""
    ours, plain = ([torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))] for _ in range(2))
    fused, reference = _sgd(ours, 0.1), torch.optim.SGD(plain, 0.1, momentum=0.9, foreach=False)
    for step in range(4):
        for first, late in (ours, plain):
            first.grad = torch.full((3,), 1.0 + step)
            late.grad = None if step < 2 else torch.full((2,), 2.0 * step)
        fused.step()
        reference.step()
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.equal(ours[1], torch.ones(2))
