"""The error tree: what a user can cause, with the exit code of each kind. No printing here.

RewardctlError
├── UsageError        2   the command line asks for something that cannot be
├── ConfigError       2   the YAML says something that cannot be (a ValueError too)
├── DataError         3   input is missing or unusable
│   └── RowError          one row, or one of its cells, cannot be scored (has a status)
│       └── RowErrors     some rows of a call, by their places in it
├── PolicyStop        1   more failed rows than --max-errors allows
└── RunError          4   the run itself failed: I/O, locked output
    └── ContractError     a reward model broke the contract: count, shape or type of its scores
"""

from collections.abc import Mapping
from typing import Literal, get_args

Status = Literal[
    "ok",
    "not_applicable",
    "bad_row",
    "missing_field",
    "decode_error",
    "model_error",
    "nonfinite",
    "timeout",
    "http_error",
    "parse_error",
    "group_incomplete",
]
STATUSES: tuple[Status, ...] = get_args(Status)


class RewardctlError(Exception):
    """Anything that a user can cause; its text says place, expected, found and next step."""

    exit_code = 4


class UsageError(RewardctlError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class ConfigError(RewardctlError, ValueError):
    """The configuration says something that cannot be."""

    exit_code = 2


class DataError(RewardctlError):
    """Input is missing or unusable."""

    exit_code = 3


class RowError(DataError):
    """One row, or one cell of it, cannot be scored; `status` is the word that the output row
    carries.
    """

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class RowErrors(RowError):
    """Raised by a reward model's call: some of its rows cannot be scored, the others can.

    The call is made once more without them.

    Args:
        faults: why, by place in the call.
    """

    def __init__(self, faults: Mapping[int, RowError]) -> None:
        first = faults[min(faults)]
        super().__init__(first.status, str(first))
        self.faults = dict(faults)


class PolicyStop(RewardctlError):
    """More rows failed than the failure policy allows."""

    exit_code = 1


class RunError(RewardctlError):
    """The run itself failed: I/O, a locked output."""


class ContractError(RunError):
    """A reward model returned something that the reward contract does not allow."""


def quote(value: object) -> str:
    """`repr`, cut at 80 characters, for values in messages."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def printable(text: str) -> str:
    """Text with control characters but line ends escaped: no row can steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
