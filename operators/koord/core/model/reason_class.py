"""Classes of reasons: what kind of wait it is, and who can end it.

A class is a constant of each reason (``Reason.reason_class``). It is what a person looks for first
and what alerts are about; it knows nothing of the domains.
"""

from enum import StrEnum


class ReasonClass(StrEnum):
    """Why something waits, in one word. If several hold, the first of this order is said."""

    MISCONFIGURED = "Misconfigured"
    """It cannot start until somebody edits something: its owner."""
    INCOMPLETE = "Incomplete"
    """Members are missing: its owner, or what creates them."""
    HELD = "Held"
    """Somebody holds it on purpose."""
    WRITING = "Writing"
    """It is decided; the API server or a device plugin delays it."""
    ENDING = "Ending"
    """Room is being made: others terminate."""
    QUOTA = "Quota"
    """Its quota, or one above it, refuses: time, its owner, or who manages the quota."""
    ROOM = "Room"
    """There is not enough room now; it would fit into an emptier cluster."""
    ORDER = "Order"
    """There is room, and others ahead of it take it first."""
    ELSEWHERE = "Elsewhere"
    """Others decide: another scheduler, or a controller of volumes."""
    OPERATORS = "Operators"
    """A limit or a fault of the operators."""
