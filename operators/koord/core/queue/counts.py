"""How many units of each queue, and of each of its users, have started.

A unit counts from its first placed pod to its last terminated one. Who its user is, nobody can
prove without a stamp on admission: it is the namespace.

Pods that others place, or that name their node, never had a turn: they take none of another, and
with one of them a gang has not started yet.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from koord.core.engine.state_view import StateView
from koord.core.gang.tally import is_placed
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod
from koord.core.queue.run_time import hints_of

Line: TypeAlias = tuple[str, str]
"""Queue, user; without user: all of the queue."""


def lines_of(queue: str, user: str) -> tuple[Line, Line]:
    return (queue, ""), (queue, user)


def has_had_turn(pod: Pod, view: StateView) -> bool:
    """Whether a pod was placed by us, as our signed record says, or what it stands for was."""
    is_ours = pod.recorded is not None or pod.handling in {Handling.RESERVE, Handling.STAND_IN}
    return is_ours or pod.uid in view.assumed


def has_started(unit: Unit, view: StateView) -> bool:
    """Whether a unit has had its turn, and goes on: itself, or the Job that it belongs to."""
    has_placed = any(
        pod.node and has_had_turn(pod, view)
        for demand in unit.demands
        if demand.placed
        for pod in view.gangs.members(demand.gang).values()
    )
    return unit.is_repair or has_placed or all(map(view.has_turn, unit.pods))


def waits(unit: Unit, view: StateView) -> bool:
    """Whether all pods of a unit wait still."""
    pods = view.pods
    return all(pod.uid in pods and pods[pod.uid].is_waiting for pod in unit.pods)


def is_held(unit: Unit) -> bool:
    """Whether its owner holds a unit back: by its gang, or by any of its pods."""
    return any(demand.is_held for demand in unit.demands) or any(
        hints_of(pod).is_held for pod in unit.pods if pod.extensions
    )


class StartedUnits:
    """The started units, by queue and user."""

    def __init__(
        self, view: StateView, queue_of: Callable[[Pod], str], user_of: Callable[[Pod], str]
    ) -> None:
        self._view, self._queue_of, self._user_of = view, queue_of, user_of
        self._feed = view.feed()
        self._lines: dict[str, tuple[Line, Line]] = {}
        """Unit -> where it counts."""
        self.counts: Counter[Line] = Counter()
        self.version = 0

    def update(self) -> None:
        """Count what has changed."""
        changes = self._feed.drain()
        for gang in changes.gangs:
            self._count(gang, self._view.gangs.members(gang).values(), gang)
        for uid in changes.singles:
            pod = self._view.pods.get(uid)
            self._count(uid, () if pod is None else (pod,), "")

    def _count(self, unit: str, pods: Iterable[Pod], gang: str) -> None:
        placed = (pod for pod in pods if is_placed(pod))
        started = next((pod for pod in placed if has_had_turn(pod, self._view)), None)
        # A group of gangs starts as one: it counts by its first gang.
        is_first = not gang or min(self._view.gangs.group(gang).gangs) == gang
        lines = None
        if started is not None and is_first:
            lines = lines_of(self._queue_of(started), self._user_of(started))
        before = self._lines.get(unit)
        if lines == before:
            return
        for sign, counted in ((-1, before), (1, lines)):
            for line in counted or ():
                self.counts[line] += sign
                if not self.counts[line]:
                    del self.counts[line]
        self.version += 1
        if lines is None:
            del self._lines[unit]
        else:
            self._lines[unit] = lines
