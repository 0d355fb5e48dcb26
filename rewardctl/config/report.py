"""Collects what the checks of meaning find, except where what they looked at is itself in doubt."""

from collections.abc import Iterable, Sequence

from rewardctl.config.findings import Finding, Severity
from rewardctl.config.positions import Document, Place


class Report:
    """Findings about one document.

    A draft of the config stands in for what the schema check refused. A finding that rests on such
    a place would be a consequence, not a cause, and is left out.
    """

    def __init__(self, document: Document, doubtful: Iterable[Place] = ()) -> None:
        self.document = document
        self.doubtful = frozenset(doubtful)
        self.above_doubtful = {
            place[:length] for place in self.doubtful for length in range(len(place))
        }
        self.findings: list[Finding] = []

    def add(
        self,
        code: str,
        message: str,
        place: Place,
        *,
        reads: Sequence[Place] = (),
        severity: Severity = "error",
        hint: str | None = None,
        at_key: bool = False,
    ) -> None:
        """Record a finding at `place`.

        Args:
            reads: The other places that it rests on.
            at_key: It concerns the key at `place`, not its value.
        """
        if not any(self.is_doubtful(read) for read in (place, *reads)):
            self.findings.append(
                self.document.finding(
                    code, message, place, severity=severity, hint=hint, at_key=at_key
                )
            )

    def is_doubtful(self, place: Place) -> bool:
        """Whether the schema check refused something at, above or below `place`."""
        above = any(place[:length] in self.doubtful for length in range(len(place) + 1))
        return above or place in self.above_doubtful
