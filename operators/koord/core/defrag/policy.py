"""A DefragmentationPolicy as it is in force: what pods are moved for, when, and how many.

Only whoever writes policies decides that: nothing that a tenant writes has a neighbour moved.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, TypeAlias

from koord.core.defrag.model import MovePlan, MoveStep
from koord.core.defrag.shapes import GpuShape
from koord.core.engine.policies import ObservedPolicy, Policies
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Exempt
from koord.core.model.plan import Unit

HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class MoveWindow:
    """Minutes of the day in which pods may be moved, in UTC; ``days`` (0: Monday) begin it."""

    begin: int
    end: int
    days: frozenset[int] = frozenset(range(7))

    def is_open(self, now: float) -> bool:
        """Whether it is open at a time of the epoch."""
        time = datetime.fromtimestamp(now, UTC)
        minute = time.hour * 60 + time.minute
        yesterday = (time - timedelta(days=1)).weekday()
        if self.begin < self.end:
            return time.weekday() in self.days and self.begin <= minute < self.end
        is_evening = time.weekday() in self.days and minute >= self.begin
        return is_evening or (yesterday in self.days and minute < self.end)


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """Waiting units for which pods may be moved; ``namespaces`` None: of all."""

    namespaces: frozenset[str] | None = None
    min_priority: int | None = None
    after: float = 0.0

    def allows(self, unit: Unit, now: float) -> bool:
        """Whether pods may be moved for a unit; all its pods must be of the namespaces."""
        if self.min_priority is not None and unit.priority < self.min_priority:
            return False
        if self.namespaces is not None and any(
            pod.namespace not in self.namespaces for pod in unit.pods
        ):
            return False
        return now - unit.since >= self.after


@dataclass(frozen=True, slots=True)
class DefragSettings:
    """What a valid policy says."""

    moves: bool = False
    """Whether moves are carried out."""
    is_paused: bool = False
    interval: float = 300.0
    shapes: tuple[GpuShape, ...] = ()
    waiting: WaitingFor | None = None
    per_hour: int = 10
    per_plan: int = 16
    windows: tuple[MoveWindow, ...] = ()

    def is_open(self, now: float) -> bool:
        """Whether pods may be moved now."""
        return not self.windows or any(window.is_open(now) for window in self.windows)

    def choose(self, pending: Iterable[Unit], now: float) -> list[Unit]:
        """Return the waiting units for which pods may be moved, in their order."""
        waiting = self.waiting
        return [] if waiting is None else [unit for unit in pending if waiting.allows(unit, now)]

    def left(self, recent: Iterable[float], now: float) -> int:
        """Return how many pods may be moved now, by the moves of the last hour."""
        count = sum(now - HOUR < time for time in recent)
        return max(0, min(self.per_plan, self.per_hour - count))


DefragPolicy: TypeAlias = ObservedPolicy[DefragSettings]


class DefragPolicies(Policies[DefragSettings]):
    """All DefragmentationPolicies, by name."""

    name: ClassVar = "defrag"


def find_first_steps(plan: MovePlan) -> Iterator[MoveStep]:
    """Yield the steps whose places are free before any other step is done.

    Those whose places others have to leave first are planned again once these are done.
    """
    left: set[str] = set()
    for step in plan.steps:
        if left.isdisjoint(move.target for move in step.moves):
            yield step
        left |= {move.source for move in step.moves}


def exempt_ordered(state: ClusterState, ordered: Iterable[str]) -> Exempt:
    """Return what must not move because a move of it, or of its gang, was ordered (by uid)."""
    units = set(ordered)
    for uid in list(units):
        pod = state.pods.get(uid)
        if pod is not None and pod.gang is not None:
            units.add(state.gangs.group(pod.gang.key).id)
    return Exempt(units=units)


def count_pods(steps: Sequence[MoveStep]) -> int:
    """Return how many pods move."""
    return sum(len(step.moves) for step in steps)
