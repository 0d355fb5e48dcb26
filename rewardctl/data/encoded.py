"""A preference row as the trainable model takes it: numbers only. Reading is in preferences.py."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewardctl.errors import DataError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRow:
    """One preference row: two sides, chosen first, or K ranked candidates."""

    place: str  # file:line, for messages
    # int32 (length,) tokens or float32 (length, channels) latents, each without padding.
    items: "tuple[np.ndarray[Any, Any], ...]"
    ranks: tuple[float, ...] | None = None  # K-wise: higher is better, equal is a tie; None: a pair
    margin: float | None = None  # strength of the label; None: the neutral one
    preference: float = 1.0  # probability that the first side is better; 0.5 is a tie
    weight: float = 1.0  # of the row in its step
    timestep: float | None = None  # in [0, 1]

    @property
    def known_timestep(self) -> float:
        """The timestep, for a model that needs one.

        Raises:
            DataError: the row has none.
        """
        if self.timestep is None:
            raise DataError(
                f"{self.place}: the model is timestep-aware, but the row has no timestep"
            )
        return self.timestep

    @property
    def tokens(self) -> int:
        """Positions of all its items."""
        return sum(len(item) for item in self.items)
