"""How many rows may fail before a run stops, and what is said when it does."""

import re
from dataclasses import dataclass

from rewardctl.errors import PolicyStop, UsageError, quote

JUDGED_AFTER_ROWS = 1000  # a percentage says little about fewer
EXAMPLES = 5
MEND_AND_RESUME = "mend the rows, or allow more with --max-errors and go on with --resume"


@dataclass(frozen=True)
class MaxErrors:
    """The limit of `--max-errors`: a number of rows, or a percentage of those done."""

    rows: int | None = 0
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> "MaxErrors":
        """Read `N` or `P%`.

        Raises:
            UsageError: neither, or out of range.
        """
        number = re.fullmatch(r"(\d+)", text)
        if number:
            return cls(rows=int(text))
        share = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
        if share and float(share[1]) <= 100:
            return cls(rows=None, percent=float(share[1]))
        raise UsageError(
            f"--max-errors {quote(text)}: expected a number of rows, as in 20, or a share of them "
            "up to 100%, as in 2%"
        )

    def __str__(self) -> str:
        return str(self.rows) if self.percent is None else f"{self.percent:g}%"

    @property
    def allows_some(self) -> bool:
        """Whether a run may go on after a failed row."""
        return self.rows != 0 and self.percent != 0

    def is_exceeded(self, *, failed: int, done: int, at_end: bool) -> bool:
        """Whether `failed` rows are too many, `done` rows being finished."""
        if self.rows is not None:
            return failed > self.rows
        assert self.percent is not None
        if not at_end and done < JUDGED_AFTER_ROWS:
            return False
        return failed > done * self.percent / 100


class FailureLog:
    """The failed rows of a run: how many, the first of them in words, and in which files.

    Args:
        next_step: what to do about too many.
    """

    def __init__(self, limit: MaxErrors, *, next_step: str = MEND_AND_RESUME) -> None:
        self.limit = limit
        self._next_step = next_step
        self.rendered = 0  # failed rows among those written out
        self.by_source: dict[str, int] = {}  # of the rows written out
        self.examples: list[str] = []
        self._open: set[int] = set()  # failed rows not yet written out

    def note(self, row: int, text: str) -> None:
        """A cell of `row` failed."""
        # One example a row: a file that no stream can use shall not hide the next one.
        is_first = row not in self._open
        self._open.add(row)
        if is_first and len(self.examples) < EXAMPLES:
            self.examples.append(text)

    def settle(self, row: int, source: str) -> None:
        """A failed row was written out."""
        self._open.discard(row)
        self.rendered += 1
        self.by_source[source] = self.by_source.get(source, 0) + 1

    @property
    def failed(self) -> int:
        """Failed rows so far."""
        return self.rendered + len(self._open)

    def check(self, *, done: int, at_end: bool = False) -> None:
        """Hold the limit.

        Raises:
            PolicyStop: too many rows failed.
        """
        # A share is one of the rows written out: those of open windows may have failed already, but
        # not been done yet.
        failed = self.rendered if self.limit.rows is None else self.failed
        if not self.limit.is_exceeded(failed=failed, done=done, at_end=at_end):
            return
        count = f"{self.failed} row{'s' if self.failed != 1 else ''} failed"
        shown = "".join(f"\n  {example}" for example in self.examples)
        raise PolicyStop(
            f"stopped: {count}, --max-errors allows {self.limit}{shown}\n{self._next_step}"
        )
