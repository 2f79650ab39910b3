"""Tells cluster autoscalers of gangs that lack nodes, by marks on their members.

Looks at the units that placement could not place, and has the members marked that need new nodes,
once they have needed them for a while; from all others marks are taken off. What is marked is read
from the pods, so it is the same after a restart. A pod that is about to be bound is left alone: its
binding sets the condition.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

from koord.core.autoscaler.demand import DemandFinder, NodeDemand
from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.autoscaler.plugin import StartingNode, find_elastic
from koord.core.engine.queue import Queue
from koord.core.engine.refused_units import Blocked
from koord.core.engine.state import ClusterState
from koord.core.model.gangs import GangKey
from koord.core.model.plan import UnitKey
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.model.text import cut
from koord.isolation import Isolation
from koord.kube.translate.pod_conditions import SCALE_UP
from koord.kube.turns import in_turn

LOOK_SECONDS: Final = 1.0
PAUSES_PER_LOOK: Final = 20
"""With thousands of units that wait a look takes long: then there are fewer of them."""
AGAIN_SECONDS: Final = 60.0
"""How long a pod that lost its mark is not marked again."""
MOST_WRITES: Final = 64
"""At one look."""
MOST_IN_FLIGHT: Final = 8


class MarkWriter(Protocol):
    """Writes marks; see ``ScaleUpMarks``."""

    async def put(self, pod: Pod, message: str) -> bool: ...
    async def take_off(self, pod: Pod) -> bool: ...


@dataclass(slots=True)
class ScaleUpSignals:
    """Runs while the process leads; ``marked`` are the pods that show a mark now."""

    state: ClusterState
    queue: Queue
    options: AutoscalerOptions
    writer: MarkWriter
    marked: Mapping[str, Pod]
    preempting: Callable[[UnitKey], Reason | None]
    note: Callable[[set[GangKey], set[str]], None]
    """Has it reported again why these gangs and pods wait."""
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    _since: dict[UnitKey, float] = field(default_factory=dict)
    """Unit -> since when it has lacked nodes."""
    _taken_off: dict[str, float] = field(default_factory=dict)
    """Uid -> when its mark was taken off."""
    _awaited: set[str] = field(default_factory=set)
    """The nodes that were starting at the last look."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("scale-up"))

    async def run(self) -> NoReturn:
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = self.clock()
            if self.is_synced() and (self.marked or (self._is_on and self.queue.blocked)):
                with self._isolated.of("look", began):
                    await self.look()
            pause = max(LOOK_SECONDS, PAUSES_PER_LOOK * (self.clock() - began))

    def _find_starting(self) -> list[StartingNode]:
        """Return the nodes that are starting; if these are others than before, it is told."""
        elastic = find_elastic(self.state.plugins)
        starting = [] if elastic is None else elastic.find_starting()
        names = {coming.node.name for coming in starting}
        if names != self._awaited:
            self._awaited = names
            pods = [pod for blocked in self.queue.blocked.values() for pod in blocked.pods]
            gangs = {pod.gang.key for pod in pods if pod.gang is not None}
            self.note(gangs, {pod.uid for pod in pods if pod.gang is None})
        return starting

    @property
    def _is_on(self) -> bool:
        return self.options.signal is Signal.MARK

    async def look(self) -> None:
        """Put and take off what is due now."""
        now = self.clock()
        wanted = self._find_wanted(now) if self._is_on else {}
        self._taken_off = {
            uid: at for uid, at in self._taken_off.items() if at + AGAIN_SECONDS > now
        }
        off = [
            pod
            for uid, pod in self.marked.items()
            if uid not in wanted and uid not in self.state.assumed
        ]
        put = [
            (pod, text)
            for uid, (pod, text) in wanted.items()
            if uid not in self.marked and uid not in self._taken_off
        ]
        off = list(in_turn(off, _namespace_of))[:MOST_WRITES]
        slots = asyncio.Semaphore(MOST_IN_FLIGHT)

        async def take_off(pod: Pod) -> None:
            async with slots:
                if await self.writer.take_off(pod):
                    self._taken_off[pod.uid] = now

        async def put_on(pod: Pod, text: str) -> None:
            async with slots:
                await self.writer.put(pod, text)

        async with asyncio.TaskGroup() as group:
            for pod in off:
                group.create_task(take_off(pod))
            for pod, text in put[: MOST_WRITES - len(off)]:
                group.create_task(put_on(pod, text))

    def _find_wanted(self, now: float) -> dict[str, tuple[Pod, str]]:
        demands = {demand.unit: demand for demand in self.find_demands()}
        self._since = {unit: self._since.get(unit, now) for unit in demands}
        return {
            pod.uid: (pod, _describe(demand))
            for unit, demand in demands.items()
            if self._since[unit] + self.options.delay <= now or self._is_told(demand)
            for pod in demand.pods
        }

    def _is_told(self, demand: NodeDemand) -> bool:
        """Whether it was told of before: by an earlier process, or as another unit."""
        return any(pod.uid in self.marked for pod in demand.pods)

    def find_demands(self) -> list[NodeDemand]:
        """Return who needs new nodes now, in the order of turns."""
        if not self.queue.blocked:
            return []
        blocked = self.queue.blocked
        units = [unit for unit in self.queue.pending() if unit.key in blocked]
        self.state.refresh()
        with closing(self.state.open_cycle(self.queue.by_time)) as cycle:
            starting = self._find_starting()
            return DemandFinder(cycle, self.options, starting).find(
                blocked[unit.key] for unit in units if self._is_settled(blocked[unit.key])
            )

    def _is_settled(self, blocked: Blocked) -> bool:
        """Whether nobody makes room for a unit by evictions, as far as is known."""
        return self.preempting(blocked.unit.key) is None


def _namespace_of(pod: Pod) -> str:
    return pod.namespace


def _describe(demand: NodeDemand) -> str:
    """Return a text that stays the same while it waits: each other one would be another write."""
    first = demand.pods[0]
    who = f"gang {first.gang.key}" if first.gang is not None else "the pod"
    return f"{SCALE_UP}{cut(who)} lacks nodes with room"
