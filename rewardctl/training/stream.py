"""A packed stream: where its sequences lie, their positions, and checks of what it is made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from rewardctl.errors import RowError, quote


class Run(NamedTuple):
    """Neighbouring sequences of one length."""

    size: int  # sequences
    length: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the sequences of a stream lie, and the rotary angles of its positions."""

    lengths: list[int]
    runs: list[Run]
    turns: Tensor  # complex64 (total, 1, head_dim / 2): cos + i·sin of the rotary angles

    def starts(self) -> list[int]:
        """The first position of each sequence in the stream."""
        return [0, *accumulate(self.lengths[:-1])]

    def ends(self) -> list[int]:
        """The last position of each sequence in the stream."""
        return [end - 1 for end in accumulate(self.lengths)]

    def to_positions(self, by_sequence: Tensor) -> Tensor:
        """(n, channels), one for each sequence, to (total, channels)."""
        lengths = torch.tensor(self.lengths, device=by_sequence.device)
        return by_sequence.repeat_interleave(lengths, dim=0, output_size=sum(self.lengths))


def runs_of(lengths: Sequence[int]) -> list[Run]:
    """Neighbours of one length together: they are computed in one call."""
    return [Run(sum(1 for _ in equal), length) for length, equal in groupby(lengths)]


class RotaryTable:
    """The rotary turns of every position, made on demand; no weight, and never cast.

    Longer inputs than the model was built for get more rows of the same `theta`.
    """

    def __init__(self, head_dim: int, positions: int, theta: float) -> None:
        self._half = head_dim // 2
        self._positions = positions
        self._theta = theta
        self._tables: dict[torch.device, Tensor] = {}

    def layout(self, lengths: list[int], *, first: int, device: torch.device) -> Layout:
        """The layout of sequences that each begin at position `first`."""
        table = self._up_to(first + max(lengths), device)
        turns = torch.cat([table[first : first + length] for length in lengths])
        return Layout(lengths, runs_of(lengths), turns)

    def _up_to(self, positions: int, device: torch.device) -> Tensor:
        table = self._tables.get(device)
        if table is None or len(table) < positions:
            self._positions = max(self._positions, positions)
            rates = self._theta ** -(torch.arange(self._half, dtype=torch.float64) / self._half)
            places = torch.arange(self._positions, dtype=torch.float64)
            angles = torch.outer(places, rates)[:, None]
            table = torch.polar(torch.ones_like(angles), angles).to(torch.complex64).to(device)
            self._tables[device] = table
        return table


def flatten(x: Tensor, mask: Tensor | None) -> tuple[Tensor, list[int]]:
    """A padded batch as a stream of its real positions, and their number in each row.

    Args:
        x: (batch, length) or (batch, length, channels).
        mask: bool (batch, length), True at real positions, which are neighbours; None: all.
    """
    batch, length = x.shape[:2]
    if mask is None:
        return x.flatten(0, 1), [length] * batch
    if mask.dtype != torch.bool or mask.shape != (batch, length):
        raise RowError(
            "bad_row",
            f"mask: expected bool ({batch}, {length}), True at real positions, got {mask.dtype} "
            f"{tuple(mask.shape)}",
        )
    lengths = mask.sum(1).tolist()
    begins = mask[:, 1:] & ~mask[:, :-1]
    holed = (begins.sum(1) + mask[:, 0] > 1).tolist() if length else []
    for row, (real, has_hole) in enumerate(zip(lengths, holed, strict=True)):
        if has_hole:
            raise RowError(
                "bad_row",
                f"row {row}: the mask has a hole; real positions must be neighbours, with padding "
                "before or behind them",
            )
        if real == 0:
            raise RowError("bad_row", f"row {row}: the mask is all False; leave empty rows out")
    return x[mask], lengths


def check_lengths(flat: Tensor, lengths: Sequence[int]) -> None:
    """Every sequence has a position, and together they are the stream."""
    for row, length in enumerate(lengths):
        if length < 1:
            raise RowError("bad_row", f"row {row}: the sequence is empty; leave such rows out")
    if not lengths or sum(lengths) != len(flat):
        raise RowError(
            "bad_row",
            f"expected lengths that add up to {len(flat)} positions, got {len(lengths)} lengths "
            f"with sum {sum(lengths)}",
        )


def check_tokens(flat: Tensor, lengths: Sequence[int], vocab_size: int) -> None:
    """Every token is a row of the embedding."""
    if flat.is_floating_point() or flat.dtype == torch.bool or flat.ndim != 1:
        raise RowError(
            "bad_row",
            f"row 0: expected token ids (whole numbers), got {flat.dtype} of shape "
            f"{tuple(flat.shape[1:])} a position; latents need a model with in_channels",
        )
    low, high = (int(end) for end in torch.aminmax(flat))
    if low < 0 or high >= vocab_size:
        place = int(((flat < 0) | (flat >= vocab_size)).nonzero()[0])
        row, position = find_row(lengths, place)
        raise RowError(
            "bad_row",
            f"row {row}: token {int(flat[place])} at position {position} is outside "
            f"0..{vocab_size - 1} (vocab_size {vocab_size}); was it encoded for another model?",
        )


def check_latents(flat: Tensor, lengths: Sequence[int], in_channels: int) -> None:
    """Every latent is finite and has the model's channels."""
    if flat.ndim != 2 or not flat.is_floating_point() or flat.shape[1] != in_channels:
        raise RowError(
            "bad_row",
            f"row 0: expected latents (length, {in_channels}) of floats, got {flat.dtype} of shape "
            f"{tuple(flat.shape[1:])} a position",
        )
    # One number tells whether all are finite; which one is not is looked for only then.
    if not torch.isfinite(flat.sum()):
        bad = (~torch.isfinite(flat)).any(1).nonzero()
        if len(bad):
            row, position = find_row(lengths, int(bad[0]))
            raise RowError(
                "nonfinite", f"row {row}: the latents at position {position} are not finite"
            )


def check_timesteps(t: Tensor, n: int) -> Tensor:
    """float32 (n,), each in [0, 1]."""
    if t.shape != (n,):
        raise RowError(
            "bad_row", f"t: expected one timestep for each of {n} rows, got shape {tuple(t.shape)}"
        )
    t = t.float()
    outside = ~((t >= 0) & (t <= 1))
    if outside.any():
        row = int(outside.nonzero()[0])
        value = float(t[row])
        hint = "; divide by 1000?" if value > 1 else ""
        raise RowError("bad_row", f"row {row}: timestep {quote(value)} is outside [0, 1]{hint}")
    return t


def find_row(lengths: Sequence[int], place: int) -> tuple[int, int]:
    """The row of a place of the stream, and the position in it."""
    for row, length in enumerate(lengths):
        if place < length:
            return row, place
        place -= length
    raise AssertionError("a place behind the end of the stream")
