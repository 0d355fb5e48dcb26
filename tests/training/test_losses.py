"""Losses of preference rows: the identities they must keep, worked-out values, and row errors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rewardctl.data.encoded import EncodedRow
from rewardctl.errors import ConfigError, DataError
from rewardctl.training.losses import (
    LossConfig,
    bradley_terry_loss,
    check_rows,
    has_pair,
    plackett_luce_loss,
    rao_kupper_loss,
    row_losses,
    row_problems,
    step_loss,
    step_weight,
)

LN2 = math.log(2)
TOKEN = np.zeros(1, dtype=np.int32)
PLACKETT_LUCE = LossConfig(loss="plackett_luce")
RAO_KUPPER = LossConfig(loss="rao_kupper")


def pair(**fields: Any) -> EncodedRow:
    return EncodedRow("p.jsonl:3", (TOKEN, TOKEN), **fields)


def ranked(*ranks: float, **fields: Any) -> EncodedRow:
    return EncodedRow("k.jsonl:7", (TOKEN,) * len(ranks), ranks=ranks, **fields)


def losses_of(scores: Sequence[float], rows: Sequence[EncodedRow], **config: Any) -> list[float]:
    return row_losses(torch.tensor(scores), rows, LossConfig(**config)).loss.tolist()


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


# ---------------------------------------------------------------- Bradley–Terry


@pytest.mark.parametrize("config", [{}, {"margin_mode": "subtract"}, {"loss": "plackett_luce"}])
def test_equal_scores_give_ln_2(config: dict[str, Any]) -> None:
    assert losses_of([3.0, 3.0], [pair()], **config) == pytest.approx([LN2])


@pytest.mark.parametrize(("mode", "neutral"), [("scale", 1.0), ("subtract", 0.0), ("ignore", 9.0)])
def test_the_neutral_margin_is_the_loss_without_margins(mode: str, neutral: float) -> None:
    with_margin, without = losses_of(
        [1.0, 0.25, 1.0, 0.25], [pair(margin=neutral), pair()], margin_mode=mode
    )
    assert with_margin == without
    assert without == pytest.approx(softplus(-0.75))


def test_a_missing_margin_is_neutral_row_by_row() -> None:
    rows = [pair(margin=0.5), pair(), pair(margin=2.0)]
    assert losses_of([2.0, 1.0] * 3, rows) == pytest.approx(
        [softplus(-0.5), softplus(-1.0), softplus(-2.0)]
    )


def test_a_subtracted_margin_is_a_distance_to_reach() -> None:
    assert losses_of([2.0, 1.0], [pair(margin=3.0)], margin_mode="subtract") == pytest.approx(
        [softplus(2.0)]
    )


def test_a_margin_of_zero_under_scale_gives_no_gradient() -> None:
    scores = torch.tensor([2.0, 1.0], requires_grad=True)
    row_losses(scores, [pair(margin=0.0)], LossConfig()).loss.sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [0.0, 0.0]


def test_a_soft_label_weighs_both_outcomes() -> None:
    # 0.25·softplus(-2) + 0.75·softplus(2), with the margin on both sides.
    expected = 0.25 * softplus(-2.0) + 0.75 * softplus(2.0)
    assert losses_of([2.0, 1.0], [pair(preference=0.25, margin=2.0)]) == pytest.approx([expected])


def test_preference_zero_is_the_swapped_pair() -> None:
    assert losses_of([2.0, 0.5], [pair(preference=0.0)]) == losses_of([0.5, 2.0], [pair()])


def test_label_smoothing_is_a_soft_label() -> None:
    smoothed = losses_of([1.0, 0.0], [pair()], label_smoothing=0.1)
    assert smoothed == pytest.approx(losses_of([1.0, 0.0], [pair(preference=0.9)]))


def test_label_smoothing_leaves_a_tie_a_tie() -> None:
    tie = [pair(preference=0.5)]
    assert losses_of([1.0, 0.0], tie, label_smoothing=0.2) == pytest.approx(
        losses_of([1.0, 0.0], tie)
    )


@pytest.mark.parametrize("shift", [-100.0, 50.0])
def test_a_shift_of_all_scores_changes_nothing_but_the_centring(shift: float) -> None:
    scores = [1.0, 0.5]
    moved = [score + shift for score in scores]
    assert losses_of(moved, [pair()]) == pytest.approx(losses_of(scores, [pair()]))
    centred = losses_of(moved, [pair()], center_coefficient=0.01)
    assert centred[0] - losses_of(moved, [pair()])[0] == pytest.approx(
        0.01 * (1.5 + 2 * shift) ** 2
    )


def test_centring_of_a_ranked_row_is_the_mean_over_its_pairs() -> None:
    scores = [1.0, 2.0, 3.0]  # pairs sum to 3, 4 and 5
    plain, centred = (
        losses_of(scores, [ranked(0, 1, 2)], center_coefficient=c)[0] for c in (0.0, 0.5)
    )
    assert centred - plain == pytest.approx(0.5 * (9 + 16 + 25) / 3)


# ---------------------------------------------------------------- large gaps


@pytest.mark.parametrize("loss", ["bradley_terry", "rao_kupper", "plackett_luce"])
@pytest.mark.parametrize("gap", [1e4, -1e4])
def test_large_gaps_stay_finite_in_value_and_gradient(loss: str, gap: float) -> None:
    scores = torch.tensor([gap, 0.0, gap, 0.0, -gap], requires_grad=True)
    rows = [pair(), ranked(3, 2, 1)]
    losses = row_losses(scores, rows, LossConfig(loss=loss))  # type: ignore[arg-type]
    losses.loss.sum().backward()
    assert losses.loss[0].item() == pytest.approx(max(0.0, -gap), abs=1)
    assert torch.isfinite(losses.loss).all()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("gap", [1e4, -1e4])
def test_a_tie_at_a_large_gap_costs_the_gap(gap: float) -> None:
    tied = torch.tensor([0.5])
    # P(tie) falls as e^-|gap|, times (k² - 1)/k.
    expected = abs(gap) - math.log(3 / 2)
    assert rao_kupper_loss(torch.tensor([gap]), tied, 2.0).item() == pytest.approx(expected)


def test_half_precision_scores_are_judged_in_float32() -> None:
    scores = torch.tensor([8.0, 0.0, 7.5, 0.0], dtype=torch.bfloat16)
    losses = row_losses(scores, [pair(), pair()], LossConfig())
    assert losses.loss.dtype == torch.float32
    assert torch.exp(-losses.loss).tolist() == pytest.approx([0.999665, 0.999447], abs=1e-6)


# ---------------------------------------------------------------- Rao–Kupper


@pytest.mark.parametrize("k", [1.5, 2.0, 5.0])
@pytest.mark.parametrize("gap", [-3.0, 0.0, 0.7, 12.0])
def test_rao_kupper_probabilities_sum_to_one(k: float, gap: float) -> None:
    gaps = torch.full((3,), gap, dtype=torch.float64)
    outcomes = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    assert torch.exp(-rao_kupper_loss(gaps, outcomes, k)).sum().item() == pytest.approx(1.0)


def test_rao_kupper_tie_at_equal_scores() -> None:
    # (k - 1)/(k + 1)
    assert losses_of([1.0, 1.0], [pair(preference=0.5)], loss="rao_kupper") == pytest.approx(
        [-math.log(1 / 3)]
    )


def test_rao_kupper_tie_follows_the_formula_of_the_docs() -> None:
    gap, k = 0.8, 3.0
    tie = (k * k - 1) * math.exp(-gap) / ((1 + k * math.exp(-gap)) * (math.exp(-gap) + k))
    shown = losses_of([gap, 0.0], [pair(preference=0.5)], loss="rao_kupper", tie_strength=k)
    assert shown == pytest.approx([-math.log(tie)])


def test_rao_kupper_with_strength_1_is_bradley_terry() -> None:
    rows = [pair(), pair(preference=0.0)]
    scores = [1.5, 0.2, -0.3, 0.4]
    assert losses_of(scores, rows, loss="rao_kupper", tie_strength=1.0) == losses_of(scores, rows)


# ---------------------------------------------------------------- ranked candidates


def test_plackett_luce_of_two_is_bradley_terry() -> None:
    scores = [0.3, 1.1]
    listwise = losses_of(scores, [ranked(1, 2)], loss="plackett_luce")
    assert listwise == pytest.approx(losses_of([1.1, 0.3], [pair()]))


def test_plackett_luce_of_three_by_hand() -> None:
    # Order of scores 2, 1, 0: pick the first of three, then the first of two.
    e = math.exp
    chance = e(2) / (e(2) + e(1) + 1) * e(1) / (e(1) + 1)
    assert plackett_luce_loss(torch.tensor([2.0, 1.0, 0.0])).item() == pytest.approx(
        -math.log(chance)
    )
    shown = losses_of([0.0, 2.0, 1.0], [ranked(1, 3, 2)], loss="plackett_luce")
    assert shown == pytest.approx([-math.log(chance)])


@pytest.mark.parametrize(
    ("pairs", "gaps"),
    [("all", [1.0, 3.0, 2.0]), ("adjacent", [1.0, 2.0]), ("best_worst", [3.0])],
)
def test_a_ranked_row_is_the_mean_over_its_pairs(pairs: str, gaps: list[float]) -> None:
    # Best to worst the scores are 3, 2, 0.
    expected = sum(softplus(-gap) for gap in gaps) / len(gaps)
    assert losses_of([2.0, 0.0, 3.0], [ranked(2, 1, 3)], kwise_pairs=pairs) == pytest.approx(
        [expected]
    )


def test_tied_candidates_are_skipped_and_counted() -> None:
    losses = row_losses(torch.tensor([1.0, 5.0, 0.0]), [ranked(2, 2, 1)], LossConfig())
    assert losses.n_tied_pairs == 1
    assert losses.loss.tolist() == pytest.approx([(softplus(-1.0) + softplus(-5.0)) / 2])


def test_a_row_of_tied_candidates_does_not_count() -> None:
    rows = [ranked(1, 1), pair()]
    losses = row_losses(torch.tensor([0.0, 9.0, 1.0, 0.0]), rows, LossConfig())
    assert losses.weight.tolist() == [0.0, 1.0]
    assert math.isnan(losses.correct[0])
    assert step_loss(losses).item() == pytest.approx(softplus(-1.0))
    assert [has_pair(row, LossConfig()) for row in rows] == [False, True]


# ---------------------------------------------------------------- a step


def test_a_step_is_the_weighted_mean_of_its_rows_alone() -> None:
    rows = [pair(margin=0.5, weight=3.0), pair(), ranked(1, 3, 2, weight=0.5)]
    scores = torch.tensor([0.2, 0.9, 1.0, -1.0, 0.0, 0.4, 0.8])
    parts = scores.split([2, 2, 3])
    config = LossConfig(center_coefficient=0.01)
    alone = [
        row_losses(part, [row], config).loss.item() for part, row in zip(parts, rows, strict=True)
    ]
    expected = (3 * alone[0] + alone[1] + 0.5 * alone[2]) / 4.5
    assert step_loss(row_losses(scores, rows, config)).item() == pytest.approx(expected)


def test_micro_batches_add_up_to_the_step() -> None:
    rows = [pair(weight=2.0), pair(), pair(weight=0.25)]
    scores = torch.tensor([0.2, 0.9, 1.0, -1.0, 0.0, 0.4])
    config = LossConfig()
    total = step_weight(rows, config)
    parts = [
        step_loss(row_losses(part, chosen, config), total).item()
        for part, chosen in ((scores[:2], rows[:1]), (scores[2:], rows[1:]))
    ]
    assert sum(parts) == pytest.approx(step_loss(row_losses(scores, rows, config)).item())


def test_a_step_without_a_pair_is_an_error() -> None:
    losses = row_losses(torch.tensor([1.0, 2.0]), [ranked(1, 1)], LossConfig())
    with pytest.raises(DataError, match="all candidates of each row are tied; leave such rows out"):
        step_loss(losses)


def test_scores_of_another_shape_are_refused_instead_of_broadcast() -> None:
    with pytest.raises(DataError, match=r"expected scores of shape \(2,\).*got \(2, 1\)"):
        row_losses(torch.zeros(2, 1), [pair()], LossConfig())


# ---------------------------------------------------------------- accuracy


def test_equal_scores_count_half() -> None:
    losses = row_losses(torch.tensor([1.0, 0.0, 2.0, 2.0, 0.0, 1.0]), [pair()] * 3, LossConfig())
    assert losses.correct.tolist() == [1.0, 0.5, 0.0]
    assert losses.gap.tolist() == [1.0, 0.0, -1.0]


def test_a_tied_label_is_left_out_of_accuracy_and_counted() -> None:
    losses = row_losses(torch.tensor([1.0, 0.0]), [pair(preference=0.5)], LossConfig())
    assert math.isnan(losses.correct[0])
    assert losses.n_tied_label == 1


def test_a_preference_below_a_half_counts_as_its_swap() -> None:
    losses = row_losses(torch.tensor([1.0, 0.0]), [pair(preference=0.2)], LossConfig())
    assert losses.correct.tolist() == [0.0]


def test_a_ranked_row_is_correct_by_the_share_of_its_pairs() -> None:
    # Of (a>b, a>c, b>c) the scores 2, 3, 1 get the last two right.
    losses = row_losses(torch.tensor([2.0, 3.0, 1.0]), [ranked(3, 2, 1)], PLACKETT_LUCE)
    assert losses.correct.tolist() == pytest.approx([2 / 3])
    assert losses.gap.tolist() == pytest.approx([(-1 + 1 + 2) / 3])


def test_figures_carry_no_gradient() -> None:
    scores = torch.tensor([1.0, 0.0], requires_grad=True)
    losses = row_losses(scores, [pair()], LossConfig())
    assert losses.loss.requires_grad
    assert not losses.correct.requires_grad
    assert not losses.gap.requires_grad


# ---------------------------------------------------------------- what a row may not say


@pytest.mark.parametrize(
    ("row", "config", "text"),
    [
        (pair(weight=0.0), LossConfig(), "'weight' must be a finite number above 0, got 0.0"),
        (pair(weight=math.inf), LossConfig(), "'weight' must be a finite number above 0, got inf"),
        (pair(weight=math.nan), LossConfig(), "'weight' must be a finite number above 0, got nan"),
        (pair(margin=-1.0), LossConfig(), "'margin' must be 0 or more"),
        (pair(margin=math.nan), LossConfig(), "'margin' must be 0 or more"),
        (
            pair(preference=0.5),
            LossConfig(margin_mode="subtract"),
            "'preference' must be 1 under margin_mode subtract, got 0.5",
        ),
        (
            pair(margin=math.inf),
            LossConfig(margin_mode="subtract"),
            "'margin' must be a finite number, got inf",
        ),
        (pair(preference=0.7), RAO_KUPPER, "'preference' must be 0, 0.5 or 1 under rao_kupper"),
        (pair(margin=1.0), RAO_KUPPER, "'margin' 1.0 has no meaning under rao_kupper; drop it"),
        (
            pair(preference=0.5),
            LossConfig(loss="rao_kupper", tie_strength=1.0),
            "a tie is impossible under rao_kupper with tie_strength 1",
        ),
        (pair(margin=1.0), PLACKETT_LUCE, "'margin' 1.0 has no meaning under plackett_luce"),
        (pair(preference=0.0), PLACKETT_LUCE, "'preference' must be 1 under plackett_luce"),
        (ranked(2, 1, 2), PLACKETT_LUCE, "tied ranks have no meaning under plackett_luce"),
        (ranked(2, 1, margin=1.0), LossConfig(), "'margin' and 'preference' belong to pairs"),
        (
            EncodedRow("k.jsonl:7", (TOKEN,) * 3, ranks=(1.0, 2.0)),
            LossConfig(),
            "expected a rank for each of 3 candidates, got 2",
        ),
    ],
)
def test_a_row_that_the_loss_cannot_learn_from_is_named(
    row: EncodedRow, config: LossConfig, text: str
) -> None:
    (problem,) = row_problems([pair(), row], config)
    assert problem.startswith(f"{row.place}: {text}")
    with pytest.raises(DataError, match=row.place):
        check_rows([row], config)


def test_many_bad_rows_are_one_short_message() -> None:
    with pytest.raises(DataError, match=r"and 5 more rows$") as caught:
        check_rows([pair(weight=0.0)] * 25, LossConfig())
    assert str(caught.value).count("p.jsonl:3") == 20


def test_good_rows_have_no_problems() -> None:
    rows = [pair(), pair(margin=0.0), pair(preference=0.3), ranked(1, 1, 2)]
    check_rows(rows, LossConfig())
    check_rows([pair(preference=p) for p in (0, 0.5, 1)], RAO_KUPPER)


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"loss": "sigmoid"}, "loss: expected one of bradley_terry, rao_kupper, plackett_luce"),
        ({"margin_mode": "add"}, "margin_mode: expected one of scale, subtract, ignore"),
        ({"kwise_pairs": "some"}, "kwise_pairs: expected one of all, adjacent, best_worst"),
        ({"label_smoothing": 0.5}, r"label_smoothing: expected a number in \[0, 0.5\), got 0.5"),
        ({"center_coefficient": -1.0}, "center_coefficient: expected a number 0 or more"),
        ({"center_coefficient": math.nan}, "center_coefficient: expected a number 0 or more"),
        ({"loss": "rao_kupper", "tie_strength": 0.5}, "tie_strength: expected a number 1 or more"),
        ({"tie_strength": 2.0}, "tie_strength is not for loss bradley_terry"),
        ({"loss": "rao_kupper", "label_smoothing": 0.1}, "not for loss rao_kupper; set it to 0"),
        ({"loss": "plackett_luce", "label_smoothing": 0.1}, "not for loss plackett_luce"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        LossConfig(**settings)


def test_a_margin_mode_is_applied_by_name() -> None:
    gap, one = torch.tensor([0.5]), torch.ones(1)
    margin = torch.tensor([2.0])
    assert bradley_terry_loss(gap, one, margin, "scale").item() == pytest.approx(softplus(-1.0))
    assert bradley_terry_loss(gap, one, margin, "subtract").item() == pytest.approx(softplus(1.5))
    assert bradley_terry_loss(gap, one, margin, "ignore").item() == pytest.approx(softplus(-0.5))
