"""What the owner of a pod or a gang says of its run: how long, of which kind, for whom.

Values only. What of it is believed, and what follows, is decided in ``core/queue``.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class BackfillConsent(StrEnum):
    """Whether a unit may start in room that is reserved for others."""

    ALLOWED = "Allowed"
    """If it delays nobody."""
    NEVER = "Never"
    EVICTABLE = "Evictable"
    """Also if it would: it is evicted when the room is needed."""


@dataclass(frozen=True, slots=True)
class RunTerms:
    """Times are in seconds; None and empty: nothing is said."""

    max_run_time: int | None = None
    """After which it is killed."""
    expected_run_time: int | None = None
    run_class: str = ""
    """What runs of one kind share, so that earlier ones tell how long the next will take."""
    user: str = ""
    backfill: BackfillConsent = BackfillConsent.ALLOWED


NO_TERMS: Final = RunTerms()
