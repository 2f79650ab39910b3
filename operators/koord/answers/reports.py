"""What the operators reported in conditions, and which of it a plan made here cannot know.

The leader knows more than the objects of the cluster say: room that it keeps, writes that failed,
pauses. Where only it knows why something waits, its reason takes the place of the one found here.
Reads nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol

from koord.answers.explain import PlacementState
from koord.answers.leaders import Leader
from koord.answers.queue_view import QueueEntry
from koord.core.device.reasons import NodeLocked
from koord.core.engine.state import ClusterState
from koord.core.eviction.reasons import TerminationStuck, WaitsForTermination
from koord.core.gang.reasons import HeldForReplacements, RestartingGang, RestartProtected
from koord.core.model.gangs import GangKey
from koord.core.model.object_size import AnnotationsTooLarge, ObjectTooLarge
from koord.core.model.reasons import BindFailed, InternalError, Reason, TooExpensive
from koord.core.model.text import MAX_TEXT, cut
from koord.core.quota.reasons import QuotaCheckFailed

_FAILING: Final = frozenset({BindFailed.code, NodeLocked.code})
"""It has its room, and writes fail or devices are handed out one pod after the other."""


_LEAVING: Final = frozenset({TerminationStuck.code, WaitsForTermination.code})
"""Others leave, and the leader knows until when it waits for them."""


_ONLY_THEIRS: Final[Mapping[PlacementState, frozenset[str]]] = {
    PlacementState.PLACEABLE: _FAILING
    | _LEAVING
    | {
        HeldForReplacements.code,  # room kept in memory
        TooExpensive.code,  # steps that its namespace has wasted, and the pause after it
        QuotaCheckFailed.code,  # hooks that are installed beside the operators
        InternalError.code,
        ObjectTooLarge.code,
        AnnotationsTooLarge.code,
    },
    PlacementState.WAITING: _LEAVING,
    PlacementState.DEGRADED: frozenset({RestartingGang.code, RestartProtected.code}),
}
"""What is found here -> the reasons that only the leader can know instead."""


class SeenCondition(Protocol):
    """A condition in the status of an object."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def last_transition_time(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Reported:
    """The condition that the operators wrote on the object."""

    condition: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True)  # with slots the field would be a class attribute, as of other reasons
class ReportedReason(Reason):
    """A reason of which only code and text are known."""

    says: ClassVar = "{message}"
    code: str  # type: ignore[misc]
    message: str


def make_report(condition: SeenCondition) -> Reported:
    """Return what a condition says: whoever may write the status may have written it."""
    return Reported(
        condition.type,
        condition.status,
        cut(condition.reason),
        cut(condition.message, MAX_TEXT),
        condition.last_transition_time or "",
    )


def find_better(
    standing: PlacementState,
    reason: Reason | None,
    reported: Reported | None,
    leader: Leader | None,
) -> ReportedReason | None:
    """Return the reported reason if it is better than the one found here.

    Of operators that have stopped no report is: what they knew is gone with them.
    """
    if reported is None or (leader is not None and not leader.holder):
        return None
    is_unknown = (
        reason is None and standing is PlacementState.WAITING and reported.status == "False"
    )
    if is_unknown or reported.reason in _ONLY_THEIRS.get(standing, ()):
        return ReportedReason(reported.reason, reported.message)
    return None


def find_standing(standing: PlacementState, reason: ReportedReason) -> PlacementState:
    """Return the standing of what was found to be ``standing``, and waits for this reason."""
    if standing is not PlacementState.PLACEABLE:
        return standing
    return PlacementState.HELD_UP if reason.code in _FAILING else PlacementState.WAITING


NOT_KNOWN: Final = ReportedReason("NotKnown", "the reason is not known from here")


@dataclass(frozen=True, slots=True)
class Reports:
    """What the leader reported on pods that wait, by ``namespace/name``."""

    by_pod: Mapping[str, Reported]
    leader: Leader | None

    def on_gang(self, state: ClusterState, gang: GangKey) -> Reported | None:
        """Return the report on the first of its members that has one."""
        waiting = (pod for pod in state.gangs.members(gang).values() if pod.is_waiting)
        return next((self.by_pod[pod.key] for pod in waiting if pod.key in self.by_pod), None)

    def correct(
        self, waiting: QueueEntry, state: ClusterState, reason: Reason | None
    ) -> QueueEntry:
        """Return what waits with the reason that is better than what found here."""
        is_placed = reason is not None and reason.is_placed
        standing = PlacementState.PLACEABLE if is_placed else PlacementState.WAITING
        if waiting.kind == "podgroup":
            reports = [self.on_gang(state, name) for name in waiting.names]
        else:
            reports = [self.by_pod.get(name) for name in waiting.names]
        candidates = (find_better(standing, reason, reported, self.leader) for reported in reports)
        better = next(
            (reported_reason for reported_reason in candidates if reported_reason is not None), None
        )
        return replace(waiting, reason=better or reason or NOT_KNOWN)
