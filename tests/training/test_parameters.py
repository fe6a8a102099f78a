import pytest
import timm
import torch
from torch import nn

from entrec.training.assemble import assemble, optimizer_of
from entrec.training.parameters import faster, parameter_groups
from entrec.training.settings import settings
from tests.training.tiny import source


def test_weights_decay_and_the_rest_does_not() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2), nn.LayerNorm(2))
    weights, others = parameter_groups(module, 1e-4)
    assert weights == {"params": [module[0].weight, module[2].weight], "weight_decay": 1e-4, "adapt": True}
    kept = [module[0].bias, module[1].weight, module[1].bias, module[2].bias, module[3].weight, module[3].bias]
    assert others == {"params": kept, "weight_decay": 0.0, "adapt": False}


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2, 3))
        self.head_bias = nn.Parameter(torch.zeros(2, 3))
        self.unbias = nn.Parameter(torch.zeros(2, 3))
        self.temperature = nn.Parameter(torch.tensor(1.0))


def test_biases_by_name_and_single_numbers_do_not_decay() -> None:
    odd = Odd()
    weights, others = parameter_groups(odd, 0.1)
    assert {id(p) for p in weights["params"]} == {id(odd.unbias)}
    assert {id(p) for p in others["params"]} == {id(odd.bias), id(odd.head_bias), id(odd.temperature)}


def test_frozen_parameters_are_left_out_and_shared_ones_taken_once() -> None:
    shared = nn.Linear(3, 3, bias=False)
    first, second = nn.Sequential(shared, nn.Linear(3, 2)), nn.Sequential(nn.Linear(2, 3), shared)
    first[1].requires_grad_(False)
    groups = parameter_groups((first, second), 0.1)
    found = [p for group in groups for p in group["params"]]
    wanted = [shared.weight, second[0].weight, second[0].bias]
    assert sorted(map(id, found)) == sorted(map(id, wanted))
    torch.optim.SGD(groups, lr=0.1)  # refuses parameters that are in two groups


def test_every_parameter_of_a_transformer_is_in_one_group() -> None:
    module = timm.create_model("test_vit", num_classes=0)
    groups = parameter_groups(module, 0.05)
    assert sum(len(group["params"]) for group in groups) == len(list(module.parameters()))
    assert all(p.ndim > 1 for p in groups[0]["params"])


def test_modules_are_left_as_they_were() -> None:
    module = nn.Linear(2, 2)
    names = list(module.state_dict())
    parameter_groups([module], 0.1)
    assert list(module.state_dict()) == names


def test_a_module_of_only_biases_makes_one_group() -> None:
    assert [group["adapt"] for group in parameter_groups(nn.BatchNorm1d(3), 0.1)] == [False]


def test_nothing_to_train_and_negative_decay() -> None:
    with pytest.raises(ValueError, match="is everything frozen"):
        parameter_groups(nn.Linear(2, 2).requires_grad_(False), 0.1)
    with pytest.raises(ValueError, match=r"weight_decay must be at least 0, got -0\.1"):
        parameter_groups(nn.Linear(2, 2), -0.1)


def test_a_module_may_have_a_rate_of_its_own() -> None:
    encoder, predictor = nn.Linear(3, 2), nn.Linear(2, 2)
    groups = [{**group, "lr": 0.5} for group in parameter_groups([encoder, predictor], 1e-4)]
    found = faster(groups, predictor, 10.0)
    rates = {id(p): group["lr"] for group in found for p in group["params"]}
    assert rates == {**{id(p): 0.5 for p in encoder.parameters()}, **{id(p): 5.0 for p in predictor.parameters()}}
    kept = {id(p): (group["weight_decay"], group["adapt"]) for group in groups for p in group["params"]}
    assert kept == {id(p): (group["weight_decay"], group["adapt"]) for group in found for p in group["params"]}


@pytest.mark.parametrize(("factor", "groups"), [(1.0, 2), (10.0, 4)])
def test_byols_predictor_has_the_rate_that_is_asked_for(factor: float, groups: int) -> None:
    parts = assemble(settings("byol", {"predictor_rate": factor, "backbone": "tiny", "hidden": 4, "dim": 4}), source())
    optimizer = optimizer_of(parts.settings, parts.method)
    own = {id(p) for p in parts.method.predictor.parameters()}  # type: ignore[union-attr]
    usual = {group["lr"] for group in optimizer.param_groups for p in group["params"] if id(p) not in own}
    found = {group["lr"] for group in optimizer.param_groups for p in group["params"] if id(p) in own}
    assert len(optimizer.param_groups) == groups
    assert found == {factor * rate for rate in usual}
