"""Remedies: what would help something that waits, as values with their texts.

Only what was planned on a copy and started there is said to start. How they are found is a matter
of ``koord.answers.remedy_search``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

VERIFIED: Final = "Yes"
"""Planned on a copy with the change, it starts, unless something else that waits takes the room."""


class RemedyKind(StrEnum):
    """What is done."""

    FIX_NAME = "FixName"
    ADD_MEMBERS = "AddMembers"
    LOWER_MIN_MEMBER = "LowerMinMember"
    TOLERATE = "Tolerate"
    ASK_LESS = "AskLess"
    RAISE_MAX = "RaiseMax"
    RAISE_MIN = "RaiseMin"
    ADD_NODES = "AddNodes"
    UNCORDON = "Uncordon"
    PREEMPT = "Preempt"
    REMOVE_HOLD = "RemoveHold"


class RemedyActor(StrEnum):
    """Who can do it."""

    OWNER = "Owner"
    QUOTA_ADMIN = "QuotaAdmin"
    CLUSTER_ADMIN = "ClusterAdmin"
    TIME = "Time"
    """Nobody has to: the operators do it."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that helps. ``change`` is its data; ``affects`` are units that it evicts."""

    kind: RemedyKind
    by: RemedyActor
    sentence: str
    change: Mapping[str, Any] = field(default_factory=dict)
    affects: tuple[str, ...] = ()

    def text(self) -> str:
        """Return what to do, and what was seen when that was tried."""
        return f"{self.sentence}: then it would start."


def encode_remedies(remedies: tuple[Remedy, ...]) -> dict[str, Any]:
    """Return remedies as JSON has them."""
    return {
        "items": [
            {
                "id": f"r{at}",
                "kind": remedy.kind,
                "change": dict(remedy.change),
                "by": remedy.by,
                "verified": VERIFIED,
                "then": remedy.text(),
                "affects": list(remedy.affects),
            }
            for at, remedy in enumerate(remedies, start=1)
        ]
    }
