"""When does a gang count as ready? The one rule behind the quorum and behind every release.

``w`` waiting members (those that would start together), ``b`` bound and alive ones, ``m`` the
minimum, for the match policies that Koordinator knows:

===================  ==========================================================================
once-satisfied       ``w + b >= m``, or the gang was satisfied before and lives
waiting-and-running  ``w + b >= m``
only-waiting         ``w >= m``
===================  ==========================================================================

Upstream takes any member with a node for proof that the group was satisfied, and so never adds
``b`` under once-satisfied. Here a member with a node proves that only if *we* released it; one that
somebody else placed (a launcher without our gate) counts as one member more. With ``compat`` the
rule is upstream's to the letter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from koord.core.gang.model import MatchPolicy


@dataclass(frozen=True, slots=True)
class PermitState:
    """How one gang stands at a moment: what it asks for and what it has."""

    min_member: int
    policy: MatchPolicy
    waiting: int
    bound: int
    is_satisfied: bool = False
    """Whether it has started before, and lives."""

    def required(self, *, compat: bool = False) -> int:
        """How many waiting members must start together for the gang to be ready."""
        if self.policy is MatchPolicy.ONLY_WAITING:
            return self.min_member
        if self.policy is MatchPolicy.WAITING_AND_RUNNING:
            return max(0, self.min_member - self.bound)
        if self.is_satisfied:
            return 0
        return max(0, self.min_member - (0 if compat else self.bound))

    def is_ready(self, *, compat: bool = False) -> bool:
        """Whether its waiting members suffice."""
        return self.waiting >= self.required(compat=compat)


class Permit(StrEnum):
    """The answer for a member of a gang that could take its place now."""

    GO = "Go"
    WAIT = "Wait"
    UNKNOWN_GANG = "UnknownGang"


def permit_member(
    own: PermitState | None,
    group: Iterable[PermitState | None],
    *,
    compat: bool = False,
) -> Permit:
    """Decide for one member; ``group`` holds every gang that must be ready, None for unknown ones.

    The member itself is among the waiting ones of ``own``.
    """
    if own is None:
        return Permit.UNKNOWN_GANG
    if all(standing is not None and standing.is_ready(compat=compat) for standing in group):
        return Permit.GO
    return Permit.WAIT
