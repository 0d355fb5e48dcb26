"""Losses of preference rows: Bradley–Terry, Rao–Kupper and Plackett–Luce, each row for itself.

All in float32 and in log space. What a row may say is checked here too; reading rows is not.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from rewardctl.data.encoded import EncodedRow
from rewardctl.errors import ConfigError, DataError, quote

LossName = Literal["bradley_terry", "rao_kupper", "plackett_luce"]
MarginMode = Literal["scale", "subtract", "ignore"]
KwisePairs = Literal["all", "adjacent", "best_worst"]

NEUTRAL_MARGIN: dict[MarginMode, float] = {"scale": 1.0, "subtract": 0.0, "ignore": 1.0}
DEFAULT_TIE_STRENGTH = 2.0
MAX_SHOWN = 20  # rows that one message names


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """Which loss, and its settings; what does not go together is a `ConfigError`."""

    loss: LossName = "bradley_terry"
    margin_mode: MarginMode = "scale"  # bradley_terry alone knows margins
    label_smoothing: float = 0.0  # share of labels taken as swapped, in [0, 0.5)
    center_coefficient: float = 0.0
    tie_strength: float | None = None  # k of rao_kupper; None: 2 there, unused elsewhere
    kwise_pairs: KwisePairs = "all"  # not used by plackett_luce

    def __post_init__(self) -> None:
        for key, names in (
            ("loss", get_args(LossName)),
            ("margin_mode", get_args(MarginMode)),
            ("kwise_pairs", get_args(KwisePairs)),
        ):
            if getattr(self, key) not in names:
                raise ConfigError(
                    f"{key}: expected one of {', '.join(names)}, got {quote(getattr(self, key))}"
                )
        _expect_number("label_smoothing", self.label_smoothing, "in [0, 0.5)", 0, 0.5, below=True)
        _expect_number("center_coefficient", self.center_coefficient, "0 or more", 0)
        if self.label_smoothing and self.loss != "bradley_terry":
            raise ConfigError(
                f"label_smoothing is not for loss {self.loss}; set it to 0, or use bradley_terry"
            )
        if self.tie_strength is not None:
            _expect_number("tie_strength", self.tie_strength, "1 or more", 1)
            if self.loss != "rao_kupper":
                raise ConfigError(
                    f"tie_strength is not for loss {self.loss}; drop it, or use rao_kupper"
                )

    @property
    def k(self) -> float:
        """The tie strength that counts under rao_kupper."""
        return DEFAULT_TIE_STRENGTH if self.tie_strength is None else self.tie_strength


def _expect_number(
    key: str, value: float, meaning: str, low: float, high: float = math.inf, *, below: bool = False
) -> None:
    inside = low <= value < high if below else low <= value <= high
    if not (inside and math.isfinite(value)):
        raise ConfigError(f"{key}: expected a number {meaning}, got {quote(value)}")


@dataclass(frozen=True, eq=False)
class RowLosses:
    """What each row of a (micro) batch says; all tensors float32 (n_rows,).

    A K-wise row without a pair to learn from (all candidates tied) has loss 0 and weight 0.
    """

    loss: Tensor
    weight: Tensor
    correct: Tensor  # 1, 0, or 0.5 for equal scores; K-wise: share of its pairs; NaN: tied label
    gap: Tensor  # chosen score - rejected score; K-wise: mean over its pairs, the better first
    n_tied_label: int  # rows whose label is a tie
    n_tied_pairs: int  # pairs of K-wise rows that were skipped because their ranks are equal


class _Pair(NamedTuple):
    """One comparison of two items of the batch, by their places in `scores`."""

    first: int
    second: int
    preference: float  # probability that the first is better
    margin: float
    row: int
    share: float  # of the row's loss: 1 over its number of pairs


def row_losses(scores: Tensor, rows: Sequence[EncodedRow], config: LossConfig) -> RowLosses:
    """Losses of `rows`, from the scores of all their items.

    Args:
        scores: (n_items,), all items of all rows, one row after another.
        rows: checked by `check_rows` before.
        config: the loss.

    Returns:
        Losses with a gradient to `scores`, and figures without one.
    """
    n_items = sum(len(row.items) for row in rows)
    if scores.shape != (n_items,):
        raise DataError(
            f"row_losses: expected scores of shape ({n_items},), one for each item of the rows, "
            f"got {tuple(scores.shape)}"
        )
    scores = scores.float()
    pairs, n_tied_pairs = _pairs_of(rows, config)
    gap, total, share, row_of = _measured(scores, pairs)

    def by_row(values: Tensor) -> Tensor:
        """The mean over each row's pairs."""
        return values.new_zeros(len(rows)).index_add(0, row_of, values * share)

    per_pair = _pair_losses(gap, pairs, config)
    loss = by_row(per_pair)
    if config.loss == "plackett_luce":
        loss = torch.stack(_listwise(scores, rows, loss))
    loss = loss + config.center_coefficient * by_row(total.square())
    with torch.no_grad():
        correct = by_row(_correct(gap, pairs))
    paired = {pair.row for pair in pairs}
    tied = [row.ranks is None and row.preference == 0.5 for row in rows]
    without = [is_tied or place not in paired for place, is_tied in enumerate(tied)]
    return RowLosses(
        loss=loss,
        weight=scores.new_tensor([_weight(row, config) for row in rows]),
        correct=correct.masked_fill(torch.tensor(without, device=scores.device), math.nan),
        gap=by_row(gap).detach(),
        n_tied_label=sum(tied),
        n_tied_pairs=n_tied_pairs,
    )


def step_weight(rows: Sequence[EncodedRow], config: LossConfig) -> float:
    """Sum of the weights of the rows that have something to compare: a step's divisor."""
    return math.fsum(_weight(row, config) for row in rows)


def step_loss(losses: RowLosses, total_weight: float | None = None) -> Tensor:
    """Sum of weight times loss, over the sum of weights; float32 scalar.

    Args:
        losses: of a whole step, or of one micro batch of it.
        total_weight: `step_weight` of the whole step, where `losses` are a part of it. The parts'
            losses (and gradients) then add up to the step's.
    """
    total = losses.weight.sum() if total_weight is None else losses.loss.new_tensor(total_weight)
    if not total > 0:
        raise DataError(
            "no row of this step has a pair to learn from: all candidates of each row are tied; "
            "leave such rows out"
        )
    return (losses.loss * losses.weight).sum() / total


def check_rows(rows: Sequence[EncodedRow], config: LossConfig) -> None:
    """Raise a `DataError` that names each row the loss cannot learn from, and why."""
    problems = row_problems(rows, config)
    if problems:
        more = len(problems) - MAX_SHOWN
        shown = problems[:MAX_SHOWN] + ([f"and {more} more rows"] if more > 0 else [])
        raise DataError("\n".join(shown))


def row_problems(rows: Sequence[EncodedRow], config: LossConfig) -> list[str]:
    """What the loss cannot learn from, one text for each such row, beginning with its place."""
    found = ((row.place, _problem(row, config)) for row in rows)
    return [f"{place}: {problem}" for place, problem in found if problem is not None]


def has_pair(row: EncodedRow, config: LossConfig) -> bool:
    """Whether the row compares anything: False for a K-wise row whose pairs are all tied."""
    return row.ranks is None or next(_kwise_pairs(row.ranks, config), None) is not None


def _weight(row: EncodedRow, config: LossConfig) -> float:
    return row.weight if has_pair(row, config) else 0.0


def _problem(row: EncodedRow, config: LossConfig) -> str | None:
    if not (math.isfinite(row.weight) and row.weight > 0):
        return f"'weight' must be a finite number above 0, got {quote(row.weight)}"
    if row.ranks is not None:
        return _kwise_problem(row, row.ranks, config)
    if config.loss == "rao_kupper":
        return _rao_kupper_problem(row, config.k)
    if config.loss == "plackett_luce":
        if row.margin is not None:
            return f"'margin' {quote(row.margin)} has no meaning under plackett_luce; drop it"
        if row.preference != 1:
            return f"'preference' must be 1 under plackett_luce, got {quote(row.preference)}"
        return None
    if config.margin_mode == "scale" and row.margin is not None and not 0 <= row.margin < math.inf:
        return f"'margin' must be 0 or more under margin_mode scale, got {quote(row.margin)}"
    if config.margin_mode == "subtract":
        if row.preference != 1:
            return (
                f"'preference' must be 1 under margin_mode subtract, got {quote(row.preference)}; "
                "use scale or ignore for soft labels"
            )
        if row.margin is not None and not math.isfinite(row.margin):
            return f"'margin' must be a finite number, got {quote(row.margin)}"
    return None


def _rao_kupper_problem(row: EncodedRow, k: float) -> str | None:
    if row.margin is not None:
        return f"'margin' {quote(row.margin)} has no meaning under rao_kupper; drop it"
    if row.preference not in (0, 0.5, 1):
        return f"'preference' must be 0, 0.5 or 1 under rao_kupper, got {quote(row.preference)}"
    if row.preference == 0.5 and k == 1:
        return "a tie is impossible under rao_kupper with tie_strength 1; use more than 1"
    return None


def _kwise_problem(row: EncodedRow, ranks: Sequence[float], config: LossConfig) -> str | None:
    if len(ranks) != len(row.items):
        return f"expected a rank for each of {len(row.items)} candidates, got {len(ranks)}"
    if row.margin is not None or row.preference != 1:
        return "'margin' and 'preference' belong to pairs, and these candidates are ranked"
    if config.loss == "plackett_luce" and len(set(ranks)) < len(ranks):
        return "tied ranks have no meaning under plackett_luce; use bradley_terry, or break ties"
    return None


def _kwise_pairs(ranks: Sequence[float], config: LossConfig) -> Iterator[tuple[int, int]]:
    """Places of the better and the worse of each pair to learn from, ties left out."""
    for first, second in _candidate_pairs(ranks, config):
        if ranks[first] != ranks[second]:
            yield first, second


def _candidate_pairs(ranks: Sequence[float], config: LossConfig) -> Iterator[tuple[int, int]]:
    order = sorted(range(len(ranks)), key=lambda place: -ranks[place])
    which = "all" if config.loss == "plackett_luce" else config.kwise_pairs
    if which == "best_worst":
        return iter([(order[0], order[-1])])
    return iter(pairwise(order)) if which == "adjacent" else combinations(order, 2)


def _pairs_of(rows: Sequence[EncodedRow], config: LossConfig) -> tuple[list[_Pair], int]:
    """All comparisons of the rows, and how many were skipped because the ranks are tied."""
    pairs: list[_Pair] = []
    n_tied, start = 0, 0
    neutral = NEUTRAL_MARGIN[config.margin_mode]
    for place, row in enumerate(rows):
        if row.ranks is None:
            margin = neutral if row.margin is None else row.margin
            pairs.append(_Pair(start, start + 1, row.preference, margin, place, 1.0))
        else:
            chosen = list(_kwise_pairs(row.ranks, config))
            n_tied += sum(1 for _ in _candidate_pairs(row.ranks, config)) - len(chosen)
            for better, worse in chosen:
                share = 1 / len(chosen)
                pairs.append(_Pair(start + better, start + worse, 1.0, neutral, place, share))
        start += len(row.items)
    return pairs, n_tied


def _measured(scores: Tensor, pairs: Sequence[_Pair]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gap, sum, share of the row and the row of each pair."""

    def places(numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=scores.device)

    first = scores[places([pair.first for pair in pairs])]
    second = scores[places([pair.second for pair in pairs])]
    share = scores.new_tensor([pair.share for pair in pairs])
    return first - second, first + second, share, places([pair.row for pair in pairs])


def _pair_losses(gap: Tensor, pairs: Sequence[_Pair], config: LossConfig) -> Tensor:
    """float32 (n_pairs,)."""
    preference = gap.new_tensor([pair.preference for pair in pairs])
    if config.loss == "rao_kupper":
        return rao_kupper_loss(gap, preference, config.k)
    if config.loss == "plackett_luce":  # of two items it is bradley_terry, without margins
        return F.softplus(-gap)
    smoothing = config.label_smoothing
    preference = (1 - smoothing) * preference + smoothing * (1 - preference)
    margin = gap.new_tensor([pair.margin for pair in pairs])
    return bradley_terry_loss(gap, preference, margin, config.margin_mode)


def bradley_terry_loss(
    gap: Tensor, preference: Tensor, margin: Tensor, margin_mode: MarginMode
) -> Tensor:
    """Cross entropy of the preference under Bradley & Terry (1952), with a margin; all (n,).

    Args:
        gap: score of the first - score of the second.
        preference: probability that the first is better.
        margin: a factor of the gap (scale), or a distance that it has to reach (subtract).
        margin_mode: what the margin is.
    """
    as_won, as_lost = _bradley_terry_sides(gap, margin)[margin_mode]()
    return preference * F.softplus(as_won) + (1 - preference) * F.softplus(as_lost)


def _bradley_terry_sides(
    gap: Tensor, margin: Tensor
) -> dict[MarginMode, Callable[[], tuple[Tensor, Tensor]]]:
    return {
        "scale": lambda: (-margin * gap, margin * gap),
        "subtract": lambda: (margin - gap, margin + gap),
        "ignore": lambda: (-gap, gap),
    }


def rao_kupper_loss(gap: Tensor, preference: Tensor, k: float) -> Tensor:
    """-log P of Rao & Kupper (1967), for preferences 1 (won), 0 (lost) and 0.5 (tie); all (n,).

    P(win) = σ(gap - ln k), P(tie) = (k² - 1)·σ(gap - ln k)·σ(-gap - ln k): both softplus terms
    stay small where their probability is near 1, so nothing cancels at large gaps.
    """
    log_k = math.log(k)
    won, lost = F.softplus(log_k - gap), F.softplus(log_k + gap)
    decided = torch.where(preference == 1, won, lost)
    if k == 1:
        return decided
    return torch.where(preference == 0.5, won + lost - math.log(k * k - 1), decided)


def plackett_luce_loss(ranked: Tensor) -> Tensor:
    """-log P of an order (Plackett 1975): `ranked` are the scores (k,), best candidate first."""
    # Of all that are left (from here to the end), the first is picked.
    left = torch.logcumsumexp(ranked.flip(0), dim=0).flip(0)
    return (left - ranked)[:-1].sum()


def _listwise(scores: Tensor, rows: Sequence[EncodedRow], of_pairs: Tensor) -> list[Tensor]:
    """Each row's loss: of the whole order where candidates are ranked, else that of its pair."""
    losses, start = [], 0
    for place, row in enumerate(rows):
        if row.ranks is None:
            losses.append(of_pairs[place])
        else:
            ranks = row.ranks
            order = sorted(range(len(ranks)), key=lambda candidate: -ranks[candidate])
            losses.append(plackett_luce_loss(scores[[start + candidate for candidate in order]]))
        start += len(row.items)
    return losses


def _correct(gap: Tensor, pairs: Sequence[_Pair]) -> Tensor:
    """1, 0, or a half for equal scores; a pair with preference below a half is judged swapped."""
    sign = gap.new_tensor([1.0 if pair.preference >= 0.5 else -1.0 for pair in pairs])
    return accuracy_of(gap * sign)


def accuracy_of(gap: Tensor) -> Tensor:
    """1 where the first scores higher, 0 where lower. A tie counts half: an untrained network
    scores every pair alike and must look like chance.
    """
    return (gap > 0).float() + 0.5 * (gap == 0).float()
