"""The packed path against the network as one writes it first, and rows against themselves alone."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rewardctl.training.reward_model import RewardModel

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from plain_network import PlainNetwork

LENGTHS = [5, 1, 5, 12, 3, 3, 3, 20]
NETWORK: dict[str, Any] = {
    "vocab_size": 32,
    "seq_length": 24,
    "hidden_size": 32,
    "depth": 2,
    "num_heads": 2,
    "dropout": 0.0,
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"pooling": "cls"},
    {"pooling": "last", "qk_norm": True},
    {"timestep_aware": True, "pooling": "cls", "rope_theta": 500.0},
    {"vocab_size": None, "in_channels": 4},
    {"vocab_size": None, "in_channels": 4, "timestep_aware": True, "qk_norm": True},
]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def shaken(model: nn.Module) -> Any:
    """Weights as of a trained network: gates and head are not zero."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def build(**variant: Any) -> RewardModel:
    torch.manual_seed(0)
    model: RewardModel = shaken(RewardModel(**{**NETWORK, **variant}))
    return model


def plain_twin(model: RewardModel) -> PlainNetwork:
    """The plain network with the same weights; its conditioning matrices hold anything."""
    config = model.network_config()
    del config["mlp_ratio"]
    plain: PlainNetwork = shaken(PlainNetwork(**config))
    missing, unexpected = plain.load_state_dict(model.state_dict(), strict=False)
    assert not unexpected
    assert all("adaLN_modulation.1.weight" in name for name in missing)
    assert bool(missing) == (not model.timestep_aware)
    return plain


def rows_for(model: RewardModel, lengths: Sequence[int] = LENGTHS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    if model.in_channels is not None:
        return [torch.randn(n, model.in_channels, generator=generator) for n in lengths]
    return [torch.randint(0, 32, (n,), generator=generator) for n in lengths]


def timesteps_for(model: RewardModel, n: int) -> Tensor | None:
    return torch.linspace(0, 1, n) if model.timestep_aware else None


def score_alone(network: nn.Module, rows: Sequence[Tensor], t: Tensor | None) -> Tensor:
    """Each row by itself, as a batch of one without padding: (n,)."""
    return torch.cat(
        [
            network(row[None], None if t is None else t[place : place + 1])[:, 0]
            for place, row in enumerate(rows)
        ]
    )


def padded(rows: Sequence[Tensor], *, left: bool = False) -> tuple[Tensor, Tensor]:
    """A batch padded with what no model may look at, and its mask."""
    longest = max(map(len, rows))
    filler = float("nan") if rows[0].is_floating_point() else -100
    batch = torch.full((len(rows), longest, *rows[0].shape[1:]), filler, dtype=rows[0].dtype)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for place, row in enumerate(rows):
        one = slice(longest - len(row), None) if left else slice(len(row))
        batch[place, one], mask[place, one] = row, True
    return batch, mask


def gradients(scores: Tensor, network: nn.Module) -> dict[str, Tensor]:
    """Of a sum in which every row has a weight of its own."""
    network.zero_grad()
    (scores * torch.linspace(-1, 1, len(scores))).sum().backward()
    return {n: p.grad for n, p in network.named_parameters() if p.grad is not None}


@each_variant
def test_scores_are_those_of_the_plain_network(variant: dict[str, Any]) -> None:
    model = build(**variant)
    rows = rows_for(model)
    t = timesteps_for(model, len(rows))
    scores = model.score_packed(torch.cat(rows), LENGTHS, t)
    expected = score_alone(plain_twin(model), rows, t)
    assert scores.dtype == torch.float32
    assert expected.std() > 0.01
    # Sums in another order: a few units in the last place of float32.
    assert torch.allclose(scores, expected, rtol=0, atol=1e-5)


@each_variant
def test_gradients_are_those_of_the_plain_network(variant: dict[str, Any]) -> None:
    model = build(**variant)
    plain = plain_twin(model)
    rows = rows_for(model)
    t = timesteps_for(model, len(rows))
    ours = gradients(model.score_packed(torch.cat(rows), LENGTHS, t), model)
    theirs = gradients(score_alone(plain, rows, t), plain)
    assert ours.keys() == dict(model.named_parameters()).keys()
    for name, gradient in ours.items():
        scale = max(1.0, theirs[name].abs().max().item())
        assert torch.allclose(gradient, theirs[name], rtol=0, atol=1e-5 * scale), name


def test_the_plain_networks_conditioning_matrices_are_dead_without_timesteps() -> None:
    model = build()
    plain = plain_twin(model)
    found = gradients(score_alone(plain, rows_for(model), None), plain)
    dead = [name for name, gradient in found.items() if not gradient.any()]
    assert dead == [f"blocks.{n}.adaLN_modulation.1.weight" for n in range(2)]


@each_variant
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_a_row_in_a_padded_batch_scores_as_alone(variant: dict[str, Any], left: bool) -> None:
    model = build(**variant)
    rows = rows_for(model)
    t = timesteps_for(model, len(rows))
    batch, mask = padded(rows, left=left)
    scores = model(batch, t, mask)
    assert scores.shape == (len(rows), 1)
    assert torch.allclose(scores[:, 0], score_alone(model, rows, t), rtol=0, atol=1e-5)


def test_gradients_of_a_padded_batch_are_those_of_the_packed_rows() -> None:
    model = build()
    rows = rows_for(model)
    batch, mask = padded(rows)
    from_batch = gradients(model(batch, mask=mask)[:, 0], model)
    packed = gradients(model.score_packed(torch.cat(rows), LENGTHS), model)
    assert all(torch.equal(from_batch[name], packed[name]) for name in packed)


def test_scores_do_not_depend_on_the_order_of_the_rows() -> None:
    model = build(pooling="cls")
    rows = rows_for(model)
    order = [3, 0, 7, 1, 2, 6, 5, 4]
    scores = model.score_packed(torch.cat(rows), LENGTHS)
    mixed = model.score_packed(
        torch.cat([rows[place] for place in order]), [LENGTHS[place] for place in order]
    )
    assert torch.allclose(mixed, scores[order], rtol=0, atol=1e-5)


@each_variant
def test_bfloat16_scores_are_close_and_do_not_depend_on_the_batch(variant: dict[str, Any]) -> None:
    model = build(**variant)
    rows = rows_for(model)
    t = timesteps_for(model, len(rows))
    with torch.no_grad():
        exact = model.score_packed(torch.cat(rows), LENGTHS, t)
        model.body_dtype = torch.bfloat16
        scores = model.score_packed(torch.cat(rows), LENGTHS, t)
        alone = score_alone(model, rows, t)
    assert scores.dtype == torch.float32
    assert not torch.equal(scores, exact)
    bound = 5e-3 * max(float(exact.std()), float(exact.abs().max()), 1.0)
    assert (scores - alone).abs().max() <= bound
    assert (scores - exact).abs().max() <= 4 * bound


def test_bfloat16_gradients_are_float32_and_close() -> None:
    model = build()
    rows = rows_for(model)
    exact = gradients(model.score_packed(torch.cat(rows), LENGTHS), model)
    model.body_dtype = torch.bfloat16
    coarse = gradients(model.score_packed(torch.cat(rows), LENGTHS), model)
    assert coarse.keys() == exact.keys()
    for name, gradient in coarse.items():
        assert gradient.dtype == torch.float32
        # bfloat16 keeps 8 bits: a few per cent of the gradient's length after two blocks.
        assert (gradient - exact[name]).norm() <= 0.05 * exact[name].norm(), name


def test_weights_stored_in_bfloat16_score_as_weights_cast_on_the_way() -> None:
    model = build()
    rows = rows_for(model)
    with torch.no_grad():
        model.eval().body_dtype = torch.bfloat16
        cast = model.score_packed(torch.cat(rows), LENGTHS)
        stored = model.for_scoring(torch.bfloat16).score_packed(torch.cat(rows), LENGTHS)
    assert model.blocks[0].attn.qkv.weight.dtype == torch.bfloat16
    assert model.head[0].weight.dtype == torch.float32
    assert torch.equal(stored, cast)


def test_a_whole_model_in_bfloat16_still_scores_in_float32() -> None:
    model = build(qk_norm=True).to(torch.bfloat16)
    rows = rows_for(model)
    scores = model.score_packed(torch.cat(rows), LENGTHS)
    assert scores.dtype == torch.float32
    assert len(set(scores.tolist())) == len(rows)


def test_a_callers_autocast_does_not_reach_the_model() -> None:
    model = build()
    rows = rows_for(model)
    exact = model.score_packed(torch.cat(rows), LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model.score_packed(torch.cat(rows), LENGTHS)
    assert torch.equal(scores, exact)
