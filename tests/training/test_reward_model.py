"""The reward model: what it is built of, what it refuses, and its preference loss."""

import copy
import json
import math
from typing import Any

import pytest
import torch

from rewardctl.errors import ConfigError, DataError, RowError
from rewardctl.training.reward_model import PRESETS, RewardModel, create_reward_model

LN2 = math.log(2)
NETWORK: dict[str, Any] = {
    "vocab_size": 32,
    "seq_length": 16,
    "hidden_size": 16,
    "depth": 2,
    "num_heads": 2,
    "dropout": 0.0,
}
LATENTS: dict[str, Any] = {"vocab_size": None, "in_channels": 3}
TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def fresh(**changes: Any) -> RewardModel:
    torch.manual_seed(0)
    return RewardModel(**{**NETWORK, **changes})


def trained(**changes: Any) -> RewardModel:
    """Weights of which each score differs."""
    model = fresh(**changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


# ---------------------------------------------------------------- how it is built


@pytest.mark.parametrize("changes", [{}, LATENTS], ids=["tokens", "latents"])
def test_a_batch_gives_one_float32_score_a_row(changes: dict[str, Any]) -> None:
    x = TOKENS if not changes else torch.randn(2, 5, 3)
    scores = trained(**changes)(x)
    assert scores.shape == (2, 1)
    assert scores.dtype == torch.float32


@pytest.mark.parametrize("changes", [{}, {"timestep_aware": True}, {"pooling": "cls"}], ids=str)
def test_an_untrained_model_scores_everything_zero(changes: dict[str, Any]) -> None:
    t = torch.tensor([0.1, 0.9]) if changes.get("timestep_aware") else None
    assert fresh(**changes)(TOKENS, t).tolist() == [[0.0], [0.0]]


def test_weights_start_small_and_biases_at_zero() -> None:
    model = fresh(hidden_size=64, vocab_size=512, timestep_aware=True, pooling="cls")
    weights = dict(model.named_parameters())
    for name in ("token_embed.weight", "blocks.0.attn.qkv.weight", "blocks.1.mlp.2.weight"):
        assert weights[name].std().item() == pytest.approx(0.02, rel=0.1)
    assert 0.01 < weights["cls_token"].std().item() < 0.03
    zero = [name for name, weight in weights.items() if not weight.any()]
    assert set(zero) >= {name for name in weights if name.endswith("bias") and "norm" not in name}
    assert {"head.3.weight", "blocks.0.adaLN_modulation.1.weight"} <= set(zero)


def test_names_of_the_weights() -> None:
    names = fresh(depth=1).state_dict().keys()
    assert list(names) == [
        "token_embed.weight",
        "blocks.0.attn.qkv.weight",
        "blocks.0.attn.qkv.bias",
        "blocks.0.attn.proj.weight",
        "blocks.0.attn.proj.bias",
        "blocks.0.mlp.0.weight",
        "blocks.0.mlp.0.bias",
        "blocks.0.mlp.2.weight",
        "blocks.0.mlp.2.bias",
        "blocks.0.adaLN_modulation.1.bias",
        "norm.weight",
        "norm.bias",
        "head.0.weight",
        "head.0.bias",
        "head.3.weight",
        "head.3.bias",
    ]


def test_conditioning_matrices_exist_only_with_timesteps() -> None:
    with_timesteps = fresh(timestep_aware=True).state_dict()
    assert with_timesteps["blocks.1.adaLN_modulation.1.weight"].shape == (96, 16)
    assert "time_embed.mlp.2.weight" in with_timesteps


def test_dropout_acts_in_training_alone() -> None:
    model = trained(dropout=0.5)
    model.train()
    assert not torch.equal(model(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), model(TOKENS))


def test_the_network_config_builds_the_same_network() -> None:
    model = trained(**LATENTS, timestep_aware=True, pooling="cls", qk_norm=True, mlp_ratio=2.0)
    config = json.loads(json.dumps(model.network_config()))
    twin = RewardModel(**config)
    twin.load_state_dict(model.state_dict())
    x, t = torch.randn(2, 4, 3), torch.tensor([0.0, 1.0])
    assert torch.equal(twin(x, t), model(x, t))


def test_a_copy_scores_alike() -> None:
    model = trained()
    assert torch.equal(copy.deepcopy(model)(TOKENS), model(TOKENS))


def test_presets() -> None:
    assert {name: tuple(sizes.values()) for name, sizes in PRESETS.items()} == {
        "nano": (128, 2, 4),
        "small": (384, 6, 6),
        "base": (768, 12, 12),
        "large": (1024, 24, 16),
    }


def test_a_preset_is_built_and_arguments_override_it() -> None:
    model = create_reward_model("nano", in_channels=8, seq_length=9, timestep_aware=True, depth=1)
    config = model.network_config()
    assert (config["hidden_size"], config["depth"], config["num_heads"]) == (128, 1, 4)
    assert (config["in_channels"], config["seq_length"], config["timestep_aware"]) == (8, 9, True)


def test_small_is_the_preset_by_default() -> None:
    config = create_reward_model(vocab_size=8).network_config()
    assert (config["hidden_size"], config["depth"], config["num_heads"]) == (384, 6, 6)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"in_channels": 4}, "exactly one of vocab_size .* and in_channels .*, got vocab_size=32"),
        ({"vocab_size": None}, "exactly one of .* got vocab_size=None and in_channels=None"),
        ({"pooling": "max"}, "pooling: expected one of mean, cls, last, got 'max'"),
        ({"num_heads": 3}, "hidden_size: 16 over num_heads: 3 is no even number"),
        ({"num_heads": 16}, "hidden_size: 16 over num_heads: 16 is no even number"),
        ({"depth": 0}, "depth: expected 1 or more, got 0"),
        ({"dropout": 1.0}, r"dropout: expected a number in \[0, 1\), got 1.0"),
    ],
)
def test_a_network_that_cannot_be_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RewardModel(**{**NETWORK, **changes})


def test_an_unknown_size_lists_the_names() -> None:
    with pytest.raises(ConfigError, match="expected one of nano, small, base, large, got 'medium'"):
        create_reward_model("medium", vocab_size=8)


# ---------------------------------------------------------------- masks, positions, pooling


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_model_built_for_short_inputs_scores_long_ones_alike(pooling: str) -> None:
    short = trained(seq_length=4, pooling=pooling, rope_theta=500.0)
    long = trained(seq_length=64, pooling=pooling, rope_theta=500.0)
    for length in (4, 5, 40):
        x = torch.arange(length)[None] % 32
        assert torch.equal(short(x), long(x))


def test_theta_matters() -> None:
    x = torch.arange(12)[None]
    assert not torch.equal(trained(rope_theta=500.0)(x), trained(rope_theta=10000.0)(x))


def test_last_pools_the_last_real_position() -> None:
    model = fresh(pooling="last")  # blocks are the identity, so a position is its token
    with torch.no_grad():
        model.head[3].weight.normal_()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    scores = model(torch.tensor([[1, 7, 9], [2, 3, 7]]), mask=mask)
    assert scores[0].item() == pytest.approx(scores[1].item())
    assert scores[0].item() != 0


def test_mean_pools_the_real_positions_alone() -> None:
    model = fresh()
    with torch.no_grad():
        model.head[3].weight.normal_()
    mask = torch.tensor([[True, False, False], [True, True, True]])
    scores = model(torch.tensor([[7, 1, 2], [7, 7, 7]]), mask=mask)
    assert scores[0].item() == pytest.approx(scores[1].item())


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        ([[True, True, True], [False, False, False]], "row 1: the mask is all False"),
        ([[True, True, True], [True, False, True]], "row 1: the mask has a hole"),
    ],
)
def test_a_mask_that_cannot_be_is_refused_with_its_row(mask: list[list[bool]], text: str) -> None:
    with pytest.raises(RowError, match=text):
        fresh()(TOKENS, mask=torch.tensor(mask))


@pytest.mark.parametrize(
    "mask", [torch.ones(2, 3), torch.ones(2, 2, dtype=torch.bool), torch.ones(3, dtype=torch.bool)]
)
def test_a_mask_of_another_type_or_shape_is_refused(mask: torch.Tensor) -> None:
    with pytest.raises(RowError, match=r"mask: expected bool \(2, 3\), True at real positions"):
        fresh()(TOKENS, mask=mask)


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize(("token", "place"), [(32, 1), (-1, 0)])
def test_a_token_out_of_range_is_refused_with_its_row(token: int, place: int) -> None:
    x = TOKENS.clone()
    x[1, place] = token
    with pytest.raises(
        RowError, match=rf"row 1: token {token} at position {place} is outside 0\.\.31"
    ):
        fresh()(x)


def test_padding_may_hold_any_number() -> None:
    x = torch.tensor([[1, 2, -100]])
    assert fresh()(x, mask=torch.tensor([[True, True, False]])).shape == (1, 1)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.uint8])
def test_tokens_may_be_any_whole_numbers(dtype: torch.dtype) -> None:
    model = trained()
    assert torch.equal(model(TOKENS.to(dtype)), model(TOKENS))


@pytest.mark.parametrize(
    ("flat", "lengths", "text"),
    [
        (torch.tensor([1, 2]), [2, 0], "row 1: the sequence is empty"),
        (torch.tensor([1, 2]), [1], "expected lengths that add up to 2 positions, got 1 lengths"),
        (torch.tensor([], dtype=torch.long), [], "add up to 0 positions, got 0 lengths"),
        (torch.tensor([1.0, 2.0]), [2], "row 0: expected token ids .*got torch.float32"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(
    flat: torch.Tensor, lengths: list[int], text: str
) -> None:
    with pytest.raises(RowError, match=text):
        fresh().score_packed(flat, lengths)


def test_rows_without_positions_are_refused() -> None:
    with pytest.raises(RowError, match="row 0: the sequence is empty"):
        fresh()(torch.zeros(2, 0, dtype=torch.long))


@pytest.mark.parametrize(
    ("changes", "x", "text"),
    [
        ({}, torch.zeros(2, 3, 3), r"x: expected shape \(batch, length\), got \(2, 3, 3\)"),
        (LATENTS, TOKENS, r"x: expected shape \(batch, length, channels\), got \(2, 3\)"),
        (LATENTS, torch.zeros(2, 5, 4), r"row 0: expected latents \(length, 3\)"),
        (LATENTS, torch.zeros(2, 5, 3, dtype=torch.long), r"row 0: expected latents .*int64"),
    ],
)
def test_an_input_of_another_kind_is_refused(
    changes: dict[str, Any], x: torch.Tensor, text: str
) -> None:
    with pytest.raises(RowError, match=text):
        fresh(**changes)(x)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_latents_that_are_not_finite_are_refused_with_their_row(value: float) -> None:
    x = torch.zeros(2, 5, 3)
    x[1, 4, 0] = value
    with pytest.raises(RowError, match="row 1: the latents at position 4 are not finite") as caught:
        fresh(**LATENTS)(x)
    assert caught.value.status == "nonfinite"


def test_latents_whose_sum_overflows_are_finite() -> None:
    assert fresh(**LATENTS)(torch.full((1, 4, 3), 3e38)).shape == (1, 1)


# ---------------------------------------------------------------- timesteps


def test_the_timestep_reaches_the_score() -> None:
    model = trained(timestep_aware=True)
    row = TOKENS[:1].expand(3, -1)
    assert len({score for (score,) in model(row, torch.tensor([0.1, 0.5, 0.9])).tolist()}) == 3


def test_whole_numbers_are_timesteps_too() -> None:
    model = trained(timestep_aware=True)
    ends = torch.tensor([0, 1])
    assert torch.equal(model(TOKENS, ends), model(TOKENS, ends.float()))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (500.0, r"row 1: timestep 500.0 is outside \[0, 1\]; divide by 1000\?"),
        (-0.5, r"row 1: timestep -0.5 is outside \[0, 1\]$"),
        (math.nan, r"row 1: timestep nan is outside \[0, 1\]$"),
    ],
)
def test_a_timestep_out_of_range_is_refused_with_its_row(value: float, text: str) -> None:
    with pytest.raises(RowError, match=text):
        fresh(timestep_aware=True)(TOKENS, torch.tensor([0.5, value]))


def test_a_timestep_for_each_row_is_needed() -> None:
    with pytest.raises(RowError, match=r"one timestep for each of 2 rows, got shape \(1,\)"):
        fresh(timestep_aware=True)(TOKENS, torch.tensor([0.5]))


def test_a_missing_timestep_is_refused() -> None:
    with pytest.raises(ValueError, match="this model is timestep_aware: give t"):
        fresh(timestep_aware=True)(TOKENS)


def test_a_timestep_for_a_model_without_is_refused() -> None:
    with pytest.raises(ValueError, match="this model is not timestep_aware; leave t out"):
        fresh()(TOKENS, torch.tensor([0.5, 0.5]))


# ---------------------------------------------------------------- preference loss


def test_an_untrained_model_looks_like_chance() -> None:
    figures = fresh().compute_preference_loss(TOKENS, TOKENS.flip(0))
    assert figures["loss"].item() == pytest.approx(LN2)
    assert figures["accuracy"].item() == 0.5
    assert figures["reward_margin"].item() == 0.0


def test_figures_of_a_batch_of_pairs() -> None:
    model = trained()
    rejected = torch.tensor([[9, 8, 7, 6], [1, 1, 1, 1]])
    c, r = model(TOKENS)[:, 0], model(rejected)[:, 0]
    figures = model.compute_preference_loss(TOKENS, rejected)
    assert figures.keys() == {
        "loss",
        "accuracy",
        "reward_margin",
        "chosen_reward",
        "rejected_reward",
    }
    expected = torch.log1p(torch.exp(r - c)).mean()
    assert figures["loss"].item() == pytest.approx(expected.item(), abs=1e-6)
    assert figures["accuracy"].item() == (c > r).float().mean().item()
    assert figures["chosen_reward"].item() == pytest.approx(c.mean().item(), abs=1e-6)
    assert figures["rejected_reward"].item() == pytest.approx(r.mean().item(), abs=1e-6)
    assert figures["reward_margin"].item() == pytest.approx((c - r).mean().item(), abs=1e-6)
    assert [name for name, figure in figures.items() if figure.requires_grad] == ["loss"]


def test_the_margin_is_a_factor_of_the_gap_and_neutral_at_one() -> None:
    model = trained()
    rejected = TOKENS.flip(1)
    gap = (model(TOKENS) - model(rejected))[:, 0]
    plain = model.compute_preference_loss(TOKENS, rejected)["loss"]
    ones = model.compute_preference_loss(TOKENS, rejected, torch.ones(2))["loss"]
    scaled = model.compute_preference_loss(TOKENS, rejected, torch.tensor([0.5, 3.0]))["loss"]
    assert torch.equal(plain, ones)
    expected = torch.log1p(torch.exp(-torch.tensor([0.5, 3.0]) * gap)).mean()
    assert scaled.item() == pytest.approx(expected.item(), abs=1e-6)


def test_a_margin_column_is_no_table() -> None:
    model = trained()
    margins = torch.tensor([0.0, 5.0])
    flat, column = (
        model.compute_preference_loss(TOKENS, TOKENS.flip(1), margin)["loss"]
        for margin in (margins, margins[:, None])
    )
    assert torch.equal(flat, column)


def test_masks_of_both_sides_are_used() -> None:
    model = trained()
    rejected = torch.tensor([[9, 8, 7, 99], [1, 99, 99, 99]])
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    figures = model.compute_preference_loss(TOKENS, rejected, rejected_mask=mask)
    expected = torch.cat([model(torch.tensor([[9, 8, 7]])), model(torch.tensor([[1]]))]).mean()
    assert figures["rejected_reward"].item() == pytest.approx(expected.item(), abs=1e-6)


def test_a_pairs_timestep_is_that_of_both_sides() -> None:
    model = trained(timestep_aware=True)
    t = torch.tensor([0.2, 0.8])
    figures = model.compute_preference_loss(TOKENS, TOKENS.flip(1), t=t)
    expected = (model(TOKENS, t) - model(TOKENS.flip(1), t)).mean()
    assert figures["reward_margin"].item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize(
    ("margin", "text"),
    [
        (torch.ones(3), r"margin: expected shape \(2,\), got \(3,\)"),
        (torch.ones(1, 2), r"margin: expected shape \(2,\), got \(1, 2\)"),
        (torch.tensor([1.0, -1.0]), "row 1: 'margin' must be a finite number of 0 or more, got -1"),
        (torch.tensor([math.nan, 1.0]), "row 0: 'margin' must be a finite number"),
    ],
)
def test_a_margin_that_cannot_be_is_refused(margin: torch.Tensor, text: str) -> None:
    with pytest.raises(DataError, match=text):
        fresh().compute_preference_loss(TOKENS, TOKENS, margin)


def test_sides_of_different_number_are_refused() -> None:
    with pytest.raises(RowError, match="as many rejected as chosen rows, got 1 and 2"):
        fresh().compute_preference_loss(TOKENS, TOKENS[:1])
