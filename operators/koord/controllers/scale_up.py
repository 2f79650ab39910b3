"""Tells cluster autoscalers of gangs that lack nodes.

Looks at the units that placement could not place, and tells of those that need new nodes once they
have needed them for a while. How it is told is up to channels, which also take back what is no
longer so.
"""

import asyncio
from collections.abc import Callable, Iterable
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
from koord.core.model.reasons import Reason
from koord.isolation import Isolation

LOOK_SECONDS: Final = 1.0
PAUSES_PER_LOOK: Final = 20
"""With thousands of units that wait a look takes long: then there are fewer of them."""
VAIN_SECONDS: Final = 600.0
"""Who was told of for so long and got no nodes comes after other namespaces, for as long."""


class Channel(Protocol):
    """One way to tell autoscalers."""

    @property
    def is_busy(self) -> bool:
        """Whether there is something to take back."""

    def knows(self, demand: NodeDemand) -> bool:
        """Whether an autoscaler has been told of it."""

    async def tell(self, demands: Iterable[NodeDemand], now: float) -> None:
        """Tell of just these demands, and take back what else was told."""


@dataclass(slots=True)
class ScaleUpSignals:
    """Runs while the process leads; each of the ``channels`` is that of a signal."""

    state: ClusterState
    queue: Queue
    options: AutoscalerOptions
    channels: dict[Signal, Channel]
    preempting: Callable[[UnitKey], Reason | None]
    note: Callable[[set[GangKey], set[str]], None]
    """Has it reported again why these gangs and pods wait."""
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    pause: float = LOOK_SECONDS
    """Until the next look, in seconds."""
    _since: dict[UnitKey, float] = field(default_factory=dict)
    """Unit -> since when it has lacked nodes."""
    _told: dict[UnitKey, float] = field(default_factory=dict)
    """Unit -> since when autoscalers have been told of it."""
    _late: dict[str, float] = field(default_factory=dict)
    """Namespace -> until when it comes after others."""
    _awaited: set[str] = field(default_factory=set)
    """The nodes that were starting at the last look."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("scale-up"))

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(self.pause)
            if self.is_synced() and (self._is_busy or (self._is_on and self.queue.blocked)):
                with self._isolated.of("look", self.clock()):
                    await self.look()

    @property
    def _is_on(self) -> bool:
        return self.options.signal in self.channels

    @property
    def _is_busy(self) -> bool:
        return any(channel.is_busy for channel in self.channels.values())

    async def look(self) -> None:
        """Tell of what is due now, by the channel that is in use; take back what others told."""
        now = self.clock()
        demands = self._find_due(now) if self._is_on else []
        # Only what holds up the process: a slow API server delays nothing but the writes.
        self.pause = max(LOOK_SECONDS, PAUSES_PER_LOOK * (self.clock() - now))
        for signal, channel in self.channels.items():
            await channel.tell(demands if signal is self.options.signal else (), now)

    def _find_due(self, now: float) -> list[NodeDemand]:
        """Return who has needed new nodes for long enough."""
        demands = self.find_demands()
        channel = self.channels[self.options.signal]
        self._since = {demand.unit: self._since.get(demand.unit, now) for demand in demands}
        due = [
            demand
            for demand in demands
            if self._since[demand.unit] + self.options.delay <= now or channel.knows(demand)
        ]
        self._note_marked(due, now)
        return due

    def _note_marked(self, due: Iterable[NodeDemand], now: float) -> None:
        """Have those yield to others that no autoscaler brings nodes for."""
        open_demands = [demand for demand in due if not demand.is_served]
        self._told = {demand.unit: self._told.get(demand.unit, now) for demand in open_demands}
        self._late = {name: until for name, until in self._late.items() if until > now}
        for demand in open_demands:
            if self._told[demand.unit] + VAIN_SECONDS <= now:
                self._late[demand.pods[0].namespace] = now + VAIN_SECONDS

    def find_demands(self) -> list[NodeDemand]:
        """Return who needs new nodes now, in the order of turns; who was told in vain, last."""
        if not self.queue.blocked:
            return []
        blocked = self.queue.blocked
        units = [unit for unit in self.queue.pending() if unit.key in blocked]
        units.sort(key=lambda unit: unit.pods[0].namespace in self._late)
        self.state.refresh()
        with closing(self.state.open_cycle(self.queue.by_time)) as cycle:
            starting = self._find_starting()
            return DemandFinder(cycle, self.options, starting, self._isolated).find(
                blocked[unit.key] for unit in units if self._is_settled(blocked[unit.key])
            )

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

    def _is_settled(self, blocked: Blocked) -> bool:
        """Whether nobody makes room for a unit by evictions, as far as is known."""
        return self.preempting(blocked.unit.key) is None
