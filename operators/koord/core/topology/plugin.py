"""Joins network topology to the planner: keeps trees in step with nodes, opens sessions.

How a gang is split over a tree is decided in the package; how its domains are chosen, in
``strategy``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import (
    FilterReach,
    PlaceRecorded,
    Plugin,
    RoomOf,
    Strategic,
    UnitStrategy,
)
from koord.core.model.nodes import Node
from koord.core.model.plan import Unit
from koord.core.topology.cache import Topology, TopologyCache
from koord.core.topology.strategy.domain_room import SharedDomainRoom
from koord.core.topology.strategy.gang_topology import TopologyStrategy
from koord.core.topology.strategy.topology_view import PodAttraction, TopologyView

if TYPE_CHECKING:
    from koord.core.model.gangs import GangKey
    from koord.core.model.topology_constraint import PlacedMember


class Topologies(Plugin):
    """The network topologies of a cluster, and the gangs whose constraints refer to them."""

    name = "topology"

    def __init__(self) -> None:
        self.cache = TopologyCache()
        self.attraction = PodAttraction()

    def upsert(self, topology: Topology) -> None:
        """Apply a topology; what waits for its domains is tried again, as all nodes change them."""
        if self.cache.upsert(topology):
            self._note_domains()

    def remove(self, topology: Topology) -> None:
        if self.cache.remove(topology.name):
            self._note_domains()

    def _note_domains(self) -> None:
        self.view.note_freed(self.view.table.row_of)
        self.view.note_relabelled()

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        self.cache.upsert_node(row, node.name, node.labels)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self.cache.remove_node(row)

    @override
    def open(self, cycle: Cycle) -> "TopologySession":
        return TopologySession(cycle, TopologyView(self.cache, self.attraction, self.view.gangs))


class TopologySession(Strategic):
    """Topologies in one cycle: a strategy that places gangs by them."""

    name = Topologies.name
    reach = FilterReach.NOTHING

    def __init__(self, cycle: Cycle, view: TopologyView) -> None:
        self.view = view
        self._cycle = cycle
        self._placed: dict[GangKey, list[PlacedMember]] = {}

    @override
    def strategy(self, place_recorded: PlaceRecorded) -> UnitStrategy:
        return TopologyStrategy(self._cycle, self.view, place_recorded, self._placed)

    @override
    def room_check(self, room_of: RoomOf) -> Callable[[Unit], bool]:
        return SharedDomainRoom(self._cycle, self.view, room_of).may_hold
