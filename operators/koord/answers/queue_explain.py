"""Why a unit stands where it does in its queue, and what it waits for."""

from dataclasses import dataclass
from typing import Any

from koord.answers.encoding import encode
from koord.answers.queue_view import QueueEntry
from koord.answers.standing import NEVER_FITS
from koord.core.model.text import format_time


@dataclass(frozen=True, slots=True)
class QueueExplanation:
    """One unit, and the unit before it in the order of planning, if there is one."""

    entry: QueueEntry
    before: QueueEntry | None
    now: float

    @property
    def why_before(self) -> str:
        """Why the unit before it comes before: the first of the rules that tells them apart."""
        other, entry = self.before, self.entry
        if other is None:
            return ""
        if other.is_repair and not entry.is_repair:
            return "which lost members of a gang that has started"
        if other.priority > entry.priority:
            return f"of priority {other.priority}, more than {entry.priority}"
        if other.since < entry.since:
            return f"which is complete since {format_time(other.since)}"
        return "for which room was reserved before, or by its name"

    @property
    def never_fits(self) -> bool:
        standing = self.entry.standing
        return standing is not None and standing.state == NEVER_FITS


@encode.register
def _(explanation: QueueExplanation) -> dict[str, Any]:
    standing, before = explanation.entry.standing, explanation.before
    return {
        **encode(explanation.entry),
        "turnMessage": "" if standing is None else standing.text(),
        "before": None if before is None else list(before.names),
        "whyBefore": explanation.why_before,
    }
