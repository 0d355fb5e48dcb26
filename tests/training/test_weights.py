"""Which weights decay, and the moving average."""

import pytest
import torch
from torch import nn
from train_project import are_equal, make_model, weights_of

from rewardctl.training.weights import WeightAverage, build_adamw


def test_matrices_alone_decay() -> None:
    """With a gradient of 0, AdamW only decays: weights times 1 - lr * decay."""
    model = make_model(shaken=True, pooling="cls", qk_norm=True)
    before = weights_of(model)
    optimizer = build_adamw(model, lr=0.1, weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    decayed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert decayed == {n for n, p in model.named_parameters() if p.ndim >= 2}
    assert "cls_token" not in decayed
    for name in decayed:
        torch.testing.assert_close(model.state_dict()[name], before[name] * 0.95)


def test_every_parameter_is_trained_once() -> None:
    model = make_model(timestep_aware=True)
    groups = build_adamw(model, lr=0.1, weight_decay=0.0).param_groups
    given = [id(p) for group in groups for p in group["params"]]
    assert sorted(given) == sorted(id(p) for p in model.parameters())


class One(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([8.0]))


def test_average_takes_in_the_weights_after_each_step() -> None:
    model = One()
    average = WeightAverage(model, 0.75)
    model.weight.data.fill_(4.0)
    average.update()  # 0.75 * 8 + 0.25 * 4
    assert average.weights == {"weight": torch.tensor([7.0])}
    model.weight.data.fill_(-1.0)
    average.update()  # 0.75 * 7 + 0.25 * -1
    assert average.weights == {"weight": torch.tensor([5.0])}


def test_average_stands_in_the_model_only_while_the_block_runs() -> None:
    model = One()
    average = WeightAverage(model, 0.5)
    model.weight.data.fill_(4.0)
    average.update()
    with average.in_use():
        assert model.weight.item() == 6.0
    assert model.weight.item() == 4.0


def test_raw_weights_come_back_after_an_error() -> None:
    model = One()
    average = WeightAverage(model, 0.5)
    model.weight.data.fill_(4.0)
    with pytest.raises(ZeroDivisionError), average.in_use():
        1 / 0  # noqa: B018
    assert model.weight.item() == 4.0


def test_without_a_decay_there_is_no_average() -> None:
    model = make_model(shaken=True)
    average, before = WeightAverage(model, None), weights_of(model)
    average.update()
    assert average.weights is None
    with average.in_use():
        assert are_equal(weights_of(model), before)
