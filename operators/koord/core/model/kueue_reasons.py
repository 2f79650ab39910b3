"""Reasons about what Kueue has chosen for pods; they know neither nodes nor plans."""

from dataclasses import dataclass
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class KueueAssignmentBlocked(Reason):
    """Kueue chose a node for pods, and not all of them fit on it.

    ``want`` pods like ``pod`` were assigned to ``node``, ``fit`` of them fit. ``lacks`` says what
    the node lacks for one more; it may not be there at all.
    """

    code: ClassVar = "KueueAssignmentBlocked"
    reason_class: ClassVar = ReasonClass.ROOM
    is_capacity: ClassVar = True
    rests_on: ClassVar = frozenset({"nodes"})
    meaning: ClassVar = (
        "[Kueue](kueue.md) chose a node for the pods, and not all of them fit on it; no other node "
        "is tried. Kueue counts requests of pods that are bound, and neither what is planned or "
        "reserved here nor devices"
    )
    way_out: ClassVar = (
        "wait for room on the node; or turn Kueue's topology off for pods that the operators place"
    )
    says: ClassVar = (
        "Kueue assigned {want:# pod} like {pod} to node {node}, "
        "{is_there:?which has room for {fit}{lacks:? ({lacks:list})}|which does not exist}; no "
        "other node is tried"
    )
    advises: ClassVar = (
        "Wait for room on node {node}, or have Kueue assign the job again: evict its Workload.",
        "Or leave Kueue's topology annotations out of pods with our gate: the operators choose.",
    )
    pod: str
    node: str
    want: int
    fit: int
    lacks: tuple[str, ...] = ()
    is_there: bool = True

    @property
    def culprit(self) -> str:
        return self.pod
