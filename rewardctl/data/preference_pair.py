"""Preferences as Python users write them: pairs, ranked samples, and the arrays they come to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Literal

from rewardctl.data.encode import token_array
from rewardctl.errors import DataError, quote

if TYPE_CHECKING:
    from numpy.typing import NDArray

PairChoice = Literal["all", "adjacent", "best_worst"]


@dataclass(frozen=True, eq=False)
class PreferencePair:
    """Two answers to one prompt, the better one first.

    A side is token ids (list, array or tensor of integers), latents (float (length, channels)), or
    text. In `metadata`, `preference` (0 to 1, 0.5 is a tie) and `weight` (above 0) count in
    training.
    """

    chosen: Any
    rejected: Any
    prompt: str | None = None
    margin: float | None = None  # strength of the label, >= 0; None is the neutral one
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_margin(self.margin)


@dataclass(frozen=True, eq=False)
class StepwisePreference:
    """A pair at one timestep of a diffusion or flow model, as PreferencePair otherwise."""

    chosen: Any
    rejected: Any
    timestep: float  # in [0, 1]
    prompt: str | None = None
    margin: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_margin(self.margin)
        if not 0 <= self.timestep <= 1:
            hint = "; divide by 1000?" if self.timestep > 1 else ""
            raise DataError(f"expected a timestep in [0, 1], found {quote(self.timestep)}{hint}")


Preference = PreferencePair | StepwisePreference


@dataclass(frozen=True, eq=False)
class RankedSamples:
    """Several answers to one prompt, each with a score; higher is better, equal is a tie."""

    samples: Sequence[Any]
    prompt: str | None
    scores: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.samples) != len(self.scores) or len(self.samples) < 2:
            raise DataError(
                "expected at least two samples and a score for each, "
                f"found {len(self.samples)} samples and {len(self.scores)} scores"
            )
        if not all(map(math.isfinite, self.scores)):
            raise DataError(f"expected finite scores, found {quote(list(self.scores))}")

    def to_pairs(self, which: PairChoice = "all") -> list[PreferencePair]:
        """Pairs with the score difference as margin; tied samples make none.

        Args:
            which: Every two samples, neighbours in the ranking, or the best with the worst.
        """
        order = sorted(range(len(self.samples)), key=lambda place: -self.scores[place])
        if which == "all":
            places: Iterable[tuple[int, int]] = combinations(order, 2)
        elif which == "adjacent":
            places = pairwise(order)
        elif which == "best_worst":
            places = [(order[0], order[-1])]
        else:
            raise DataError(f"expected all, adjacent or best_worst, found {quote(which)}")
        return [
            PreferencePair(
                self.samples[better],
                self.samples[worse],
                prompt=self.prompt,
                margin=float(self.scores[better] - self.scores[worse]),
            )
            for better, worse in places
            if self.scores[better] != self.scores[worse]
        ]


def item_array(value: Any, name: str) -> NDArray[Any]:
    """A side as int32 (length,) tokens or float32 (length, channels) latents.

    Args:
        value: A list, an array or a tensor.
        name: What messages call it.

    Raises:
        DataError: empty, text, of another shape, or latents that are not finite.
    """
    import numpy as np

    if isinstance(value, str):
        raise DataError(f"{name}: expected token ids or latents, found text; encode it first")
    if hasattr(value, "detach"):  # a tensor; NumPy has no bfloat16, float32 holds each value of it
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    if isinstance(value, list | tuple) and not any(
        isinstance(part, list | tuple) for part in value
    ):
        return token_array(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(
            f"{name}: expected latents (length, channels), found ragged lists"
        ) from error
    if array.dtype.kind in "iu" and array.ndim == 1:
        return token_array(array, name)
    if array.dtype.kind not in "fiu" or array.ndim != 2 or array.size == 0:
        raise DataError(
            f"{name}: expected token ids as integers (length,) or latents as floats "
            f"(length, channels), found {array.dtype} of shape {array.shape}"
        )
    latents = array.astype(np.float32)
    if not np.isfinite(latents).all():
        raise DataError(f"{name}: expected finite latents, found NaN or infinity")
    return latents


def _check_margin(margin: float | None) -> None:
    if margin is not None and not 0 <= margin < math.inf:
        raise DataError(f"expected a margin >= 0, found {quote(margin)}; swap chosen and rejected?")
