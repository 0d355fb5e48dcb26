"""What may be doubtful in preference rows that can be read: each check by itself, rows in, problems
out. How they are counted and shown is in audit.py.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from rewardctl.data.encode import Problem
from rewardctl.data.media_ref import MediaRef
from rewardctl.data.preference_sides import CONTENT
from rewardctl.data.preferences import PreferenceRow
from rewardctl.data.samples import BaseSample

MAX_SCALE = 5.0  # a larger factor of the score gap is more likely a difference of ratings
# A bias is warned of when chance would hardly show it, and it is large enough to matter.
_SIGNIFICANT_Z = 3.0
_RELEVANT_SHARE = 0.05

_Better = tuple[int, int]  # places of the better and the worse side


class LengthBias(NamedTuple):
    """How often the longer side is the better one, among pairs of different lengths."""

    pairs: int
    longer_chosen: int

    @property
    def share(self) -> float | None:
        """Accuracy of "pick the longer"; None without such pairs."""
        return self.longer_chosen / self.pairs if self.pairs else None

    @property
    def z(self) -> float | None:
        """Standard errors between the share and one half, as if pairs were independent."""
        if not self.pairs:
            return None
        return (self.longer_chosen - self.pairs / 2) / math.sqrt(self.pairs / 4)


def contradictions(rows: Sequence[PreferenceRow]) -> Iterator[Problem]:
    """Rows that prefer A to B where an earlier row, for the same prompt, prefers B to A."""
    first: dict[tuple[bytes, bytes], str] = {}  # place by better and worse side
    for row in rows:
        keys = [_content(side) for side in row.sides]
        for better, worse in _decided(row):
            other = first.get((keys[worse], keys[better]))
            if other not in (None, row.place) and keys[better] != keys[worse]:
                message = f"contradicts {other}: the same two answers, the other way round"
                yield Problem("warning", "contradiction", row.place, message)
                break
            first.setdefault((keys[better], keys[worse]), row.place)


def shared_prompts(
    train: Sequence[PreferenceRow], validation: Sequence[PreferenceRow]
) -> Iterator[Problem]:
    """Prompts of validation rows that training rows have too, one problem a prompt."""
    places = {row.prompt: row.place for row in reversed(train) if row.prompt}
    counts = Counter(row.prompt for row in validation)
    for row in validation:
        count = counts.pop(row.prompt, 0)
        if count and row.prompt in places:
            rows = "1 validation row" if count == 1 else f"{count:,} validation rows"
            message = f"the prompt of {rows} stands in train too ({places[row.prompt]})"
            yield Problem("warning", "prompt_in_both", row.place, message)


def length_bias(
    rows: Sequence[PreferenceRow], positions: Mapping[str, Sequence[int]]
) -> LengthBias:
    """Whether longer sides are preferred, by characters of text or positions of the rest.

    Args:
        positions: Lengths of the encoded sides by place, for sides whose row does not tell.
    """
    pairs = longer = 0
    for row in rows:
        lengths = _lengths(row) or positions.get(row.place)
        if lengths is None:
            continue
        for better, worse in _decided(row):
            if lengths[better] != lengths[worse]:
                pairs += 1
                longer += lengths[better] > lengths[worse]
    return LengthBias(pairs, longer)


def length_warning(bias: LengthBias, place: str) -> Iterator[Problem]:
    """A problem where length alone says much about which side is better."""
    share, z = bias.share, bias.z
    if share is None or z is None:
        return
    if abs(z) >= _SIGNIFICANT_Z and abs(share - 0.5) >= _RELEVANT_SHARE:
        rule = "longer" if share > 0.5 else "shorter"
        yield Problem(
            "warning",
            "length_bias",
            place,
            f'"{rule} wins" alone is right on {max(share, 1 - share):.1%} of {bias.pairs:,} pairs '
            f"(z = {abs(z):.1f}); compare the model's accuracy with that, not with one half",
        )


def ties(rows: Sequence[PreferenceRow]) -> Iterator[Problem]:
    """Pairs labelled as ties, and K-wise rows with tied candidates."""
    for row in rows:
        if row.ranks is None:
            if row.preference == 0.5:
                message = "'preference' is 0.5, a tie; accuracy leaves it out"
                yield Problem("warning", "tie", row.place, message)
        elif len(set(row.ranks)) < len(row.ranks):
            tied = len(row.ranks) - len(set(row.ranks)) + 1
            message = f"{tied} of {len(row.ranks)} candidates are tied; their pairs are skipped"
            if len(set(row.ranks)) == 1:
                message = "all candidates are tied; there is nothing to compare"
            yield Problem("warning", "tie", row.place, message)


def margins(rows: Sequence[PreferenceRow], margin_mode: str) -> Iterator[Problem]:
    """Margins that only some pairs have, and such as `scale` can hardly mean.

    Args:
        margin_mode: scale | subtract | ignore.
    """
    pairs = [row for row in rows if row.ranks is None]
    given = sum(row.margin is not None for row in pairs)
    if margin_mode == "ignore" or not given:
        return
    neutral = "1" if margin_mode == "scale" else "0"
    for row in pairs:
        if row.margin is None:
            message = (
                f"no margin, but {given:,} of {len(pairs):,} pairs have one; taken as {neutral}"
            )
            yield Problem("warning", "margin_missing", row.place, message)
        elif margin_mode == "scale" and not 0 < row.margin <= MAX_SCALE:
            effect = "makes it large" if row.margin else "leaves nothing of it"
            yield Problem(
                "warning",
                "margin_scale",
                row.place,
                f"margin {row.margin:g} is a factor of the score gap and {effect}; "
                "meant margin_mode: subtract?",
            )


def timesteps(rows: Sequence[PreferenceRow], *, timestep_aware: bool) -> Iterator[Problem]:
    """Timesteps that the model needs and rows lack, or that it will not use."""
    for row in rows:
        if timestep_aware and row.timestep is None:
            message = "no 'timestep', which model.timestep_aware needs; add it, in [0, 1]"
            yield Problem("error", "timestep_missing", row.place, message)
        elif not timestep_aware and row.timestep is not None:
            message = "its timestep is ignored; set model.timestep_aware: true to use it"
            yield Problem("warning", "timestep_ignored", row.place, message)


def is_decided(row: PreferenceRow) -> bool:
    """Whether the row says of any two sides which is better."""
    return next(_decided(row), None) is not None


def identical_sides(rows: Sequence[PreferenceRow]) -> Iterator[Problem]:
    """Rows whose sides are all the same, as written."""
    for row in rows:
        if len({_content(side) for side in row.sides}) == 1:
            yield Problem("left_out", "identical", row.place, "the sides are equal")


def _decided(row: PreferenceRow) -> Iterator[_Better]:
    if row.ranks is None:
        if row.preference != 0.5:
            yield (0, 1) if row.preference > 0.5 else (1, 0)
        return
    for one, two in combinations(range(len(row.ranks)), 2):
        if row.ranks[one] != row.ranks[two]:
            yield (one, two) if row.ranks[one] > row.ranks[two] else (two, one)


def _lengths(row: PreferenceRow) -> list[int] | None:
    """Characters of text, or number of tokens; None where the row does not tell."""
    for name in ("response", "tokens"):
        values = [getattr(side, name) for side in row.sides]
        if None not in values:
            return [len(value) for value in values]
    return None


def _content(side: BaseSample) -> bytes:
    """A digest of the prompt and what the side consists of."""
    digest = hashlib.blake2b(digest_size=16)
    for name in ("prompt", *CONTENT):
        value = getattr(side, name)
        if value is not None:
            digest.update(name.encode())
            digest.update(_bytes_of(value))
    return digest.digest()


def _bytes_of(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, MediaRef):
        return repr(value.key).encode("utf-8", "surrogatepass")
    if isinstance(value, list):
        return b"\0".join(map(_bytes_of, value)) + b"\1"
    if hasattr(value, "tobytes"):
        return repr(getattr(value, "shape", None)).encode() + bytes(value.tobytes())
    return repr(value).encode()
