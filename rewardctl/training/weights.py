"""Weights while they are trained: which of them decay, and their moving average."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def build_adamw(model: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter, 2019) with decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, fused=True)


class WeightAverage:
    """The exponential moving average of a model's weights; without a decay there is none."""

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self._model = model
        self._decay = decay
        self.weights: dict[str, torch.Tensor] | None = None  # by name
        if decay is not None:
            self.weights = {n: p.detach().clone() for n, p in model.named_parameters()}

    def update(self) -> None:
        """Take in the weights after a step: average = decay · average + (1 − decay) · weights."""
        if self.weights is None or self._decay is None:
            return
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                self.weights[name].lerp_(parameter, 1 - self._decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The average in the model while the block runs; without one, the weights as they are."""
        if self.weights is None:
            yield
            return
        parameters = dict(self._model.named_parameters())
        raw = {name: p.detach().clone() for name, p in parameters.items()}
        _put(self.weights, parameters)
        try:
            yield
        finally:
            _put(raw, parameters)


@torch.no_grad()
def _put(values: dict[str, torch.Tensor], parameters: dict[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
