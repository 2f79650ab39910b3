"""Remedies: what would help something that waits, as values with their texts.

Only what was planned on a copy and started there is said to start. How they are found is a matter
of ``koord.answers.remedy_search``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypedDict

from koord.answers.edits import Edit
from koord.answers.encoding import encode


class Verified(StrEnum):
    """What was seen when a change was tried."""

    YES_IN_ORDER = "YesInOrder"
    """Planned on a copy with the change after all that comes before it in the queue, it starts."""
    YES = "Yes"
    """Planned on a copy with the change, it starts, unless something else that waits takes the
    room."""
    NO = "No"
    """Planned on a copy with the change, it does not start: it is not what keeps it."""
    NOT_TRIED = "NotTried"
    """There was no time to plan it."""


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
    WAIT_FOR = "WaitFor"
    RELAX = "Relax"
    PREEMPT = "Preempt"
    DEFRAGMENT = "Defragment"
    REMOVE_HOLD = "RemoveHold"
    USE_OTHER_QUOTA = "UseOtherQuota"


class RemedyActor(StrEnum):
    """Who can do it."""

    OWNER = "Owner"
    QUOTA_ADMIN = "QuotaAdmin"
    CLUSTER_ADMIN = "ClusterAdmin"
    TIME = "Time"
    """Nobody has to: the operators do it, or it happens by itself."""


_SEEN: Final[Mapping[Verified, str]] = {
    Verified.YES_IN_ORDER: "then it would start, also after all that waits before it",
    Verified.YES: "then it would start",
    Verified.NO: "tried, and it would still wait",
    Verified.NOT_TRIED: "not tried, that would take too long",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change. ``change`` is its data; ``affects`` are units that it evicts or moves.

    ``edits`` are what was tried; empty if it was no edit.
    """

    kind: RemedyKind
    by: RemedyActor
    sentence: str
    change: Mapping[str, Any] = field(default_factory=dict)
    affects: tuple[str, ...] = ()
    verified: Verified = Verified.YES
    edits: tuple[Edit, ...] = field(default=(), compare=False, repr=False)

    @property
    def helps(self) -> bool:
        return self.verified in {Verified.YES_IN_ORDER, Verified.YES}

    def text(self) -> str:
        """Return what to do, and what was seen when that was tried."""
        return f"{self.sentence}: {_SEEN[self.verified]}."


class RemedyDocument(TypedDict):
    """What would help: ``then`` says what was seen when it was tried."""

    id: str
    kind: RemedyKind
    change: Mapping[str, Any]
    by: RemedyActor
    verified: Verified
    then: str
    affects: list[str | None]


class RemediesDocument(TypedDict):
    """What would help, the best first."""

    items: list[RemedyDocument]


def encode_remedies(remedies: tuple[Remedy, ...]) -> RemediesDocument:
    """Return remedies as JSON has them; names that are hidden are null."""
    return {
        "items": [
            {
                "id": f"r{at}",
                "kind": remedy.kind,
                "change": encode(remedy.change),
                "by": remedy.by,
                "verified": remedy.verified,
                "then": remedy.text(),
                "affects": encode(remedy.affects),
            }
            for at, remedy in enumerate(remedies, start=1)
        ]
    }
