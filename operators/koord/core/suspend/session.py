"""The room of stand-ins in one cycle: it becomes that of the pods that have come.

It is freed before quotas charge the pods, so that it counts once, and held again if they are not
placed. Knows no Jobs.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Final, Protocol

from typing_extensions import override

from koord.core.engine.allocations import CycleChanges
from koord.core.engine.cycle import Cycle, Removed
from koord.core.engine.plugin import Admission, Admitting, FilterReach
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod, PodShape

NAME: Final = "suspend"


class HeldRooms(Protocol):
    """Knows which room is held for whom."""

    def has_turn(self, pod: Pod) -> bool:
        """Whether room is, or was, held for a pod."""

    def choose(self, pods: Iterable[Pod], taken: Collection[str]) -> Iterable[tuple[Pod, Pod]]:
        """Return pods, each with the stand-in whose room it takes: none of those that are taken."""


class HandOverSession(Admitting):
    """Gives the room of stand-ins to the pods that have come, in one cycle."""

    name = NAME
    reach = FilterReach.NOTHING

    def __init__(self, rooms: HeldRooms, cycle: Cycle) -> None:
        self._rooms, self._cycle = rooms, cycle
        self.taken = CycleChanges[str](cycle.undo)
        """Pod -> the stand-in whose room it takes."""
        self._removed: dict[str, Removed] = {}

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        """Tell them from others of their shape: what is refused to those may fit for these."""
        return pod.owners[0].uid if pod.owners and self._rooms.has_turn(pod) else None

    @override
    def pre_filter(self, unit: Unit) -> Admission:
        """Free the room that is held for the pods of a unit, before quotas charge them."""
        self._removed = {}
        for pod, stand_in in self._rooms.choose(unit.pods, set(self.taken.values())):
            self._removed[pod.uid] = self._cycle.remove((stand_in,))
            self.taken.change(pod.uid, stand_in.uid)
        return Admission(unit)

    @override
    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        """Hold the room of pods that were not placed again."""
        there = {pod.uid for pod in placed}
        for uid, removed in self._removed.items():
            if uid not in there:
                self._cycle.restore(removed)
        self._removed = {}
