"""Held room in one cycle: who takes it, who writes it down, and who may have it before that.

A unit of higher priority that fits in no other way takes the room before anybody is preempted for
it: nothing runs there. What it leaves is held again.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from typing_extensions import override

from koord.core.awaited.model import RoomRecord
from koord.core.engine.allocations import CycleChanges
from koord.core.engine.cycle import Cycle, Removed
from koord.core.engine.plugin import Draft, Relieving
from koord.core.model.plan import Unit
from koord.core.model.pods import Allocation, Pod, PodShape
from koord.core.suspend.session import HandOverSession, HeldRooms


class KeptRooms(Protocol):
    """Knows where room is held, and which pods record it."""

    def record_for(self, uid: str) -> RoomRecord | None:
        """Return what a pod is to record when it is placed; None: it records nothing."""

    def is_recorder(self, uid: str) -> bool:
        """Whether a pod is the one of its gang that records where room is held."""

    def yielding_to(self, priority: int) -> Sequence[Pod]:
        """Return the stand-ins with nodes of a lower priority than this."""


class AwaitedSession(HandOverSession, Relieving):
    """Gives room to the pods for which it is held, and to units of higher priority."""

    name = "awaited"

    def __init__(self, rooms: HeldRooms, kept: KeptRooms, cycle: Cycle) -> None:
        super().__init__(rooms, cycle)
        self._kept = kept
        self.given_up = CycleChanges[bool](cycle.undo)
        """Stand-ins of which units of higher priority have the room."""
        self._lifted: list[tuple[str, Removed]] = []

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        if self._kept.is_recorder(pod.uid):
            return pod.uid
        return super().ask(pod, shape)

    @override
    def reserve(self, draft: Draft) -> Allocation | None:
        return self._kept.record_for(draft.pod.uid)

    @override
    def relieve(self, unit: Unit) -> bool:
        self._lifted = []
        taken = {*self.taken.values(), *(uid for uid, is_up in self.given_up.items() if is_up)}
        priority = min((pod.priority for pod in unit.pods), default=0)
        for stand_in in self._kept.yielding_to(priority):
            if stand_in.uid not in taken:
                self._lifted.append((stand_in.uid, self._cycle.remove((stand_in,))))
                self.given_up.change(stand_in.uid, True)
        return bool(self._lifted)

    @override
    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        super().settle(unit, placed)
        for uid, removed in self._lifted:
            if self.given_up.get(uid) and self._cycle.restore(removed):
                self.given_up.change(uid, False)
        self._lifted = []
