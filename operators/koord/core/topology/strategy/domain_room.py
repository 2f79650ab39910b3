"""Whether any domain may have room for all of a unit that has to share one: for queueing hints.

Says more room than there is, never less: multiples and splits are not looked at, and each shape
counts as if it had the domain to itself. A tenant may have thousands of gangs that wait, so nothing
is built here: sums are kept per tree, layer and shape, and trees that nobody has asked for lately
are not made.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import RoomOf
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import PodShape
from koord.core.model.topology_constraint import (
    GatherStrategy,
    PlacedMember,
    TopologyConstraint,
)
from koord.core.topology.capacity import make_goal
from koord.core.topology.strategy.topology_view import ATTRACTED, TopologyView
from koord.core.topology.tree import TopologyTree

MOST: Final = 1 << 20
"""Pods that a node counts with at most, so that sums stay numbers."""
Shared: TypeAlias = tuple[int, Sequence[Demand], Sequence[PlacedMember]]
"""A layer, the demands that share one domain of it, and their members that are placed."""


class SharedDomainRoom:
    """The room of domains in one cycle; ``room_of`` says that of nodes."""

    def __init__(self, cycle: Cycle, view: TopologyView, room_of: RoomOf) -> None:
        self._cycle = cycle
        self._view = view
        self._room_of = room_of
        self._sums: dict[tuple[int, int, PodShape], Ints | None] = {}
        """Tree, layer, shape -> of how many pods each domain may have room; None: of any."""

    def may_hold(self, unit: Unit) -> bool:
        """Whether the domains may have room for all that a unit requires."""
        by_constraint: dict[TopologyConstraint, list[Demand]] = {}
        for demand in unit.demands:
            constraint = self._constraint_of(demand) if demand.required else None
            if constraint is not None:
                by_constraint.setdefault(constraint, []).append(demand)
        return all(self._may_meet(*each) for each in by_constraint.items())

    def _constraint_of(self, demand: Demand) -> TopologyConstraint | None:
        """Return the constraint that must be met; None also if its tree would have to be made."""
        spec = self._view.spec_of(demand.gang)
        if spec is None or (spec.topology is None and spec.sub_groups is None):
            return None
        topology = (spec.topology or ATTRACTED).topology
        if self._view.topologies.kept_tree(topology) is None:
            return None
        return self._view.required_constraint_of(demand.gang)

    def _may_meet(self, constraint: TopologyConstraint, demands: list[Demand]) -> bool:
        tree = self._view.topologies.kept_tree(constraint.topology)
        if tree is None:
            return True
        placed = list(self._view.placed_members_of(demands[0].gang))
        shared = (
            self._sub_groups(constraint, tree, demands, placed)
            if constraint.gang
            else self._whole(constraint, tree, demands, placed)
        )
        return all(self._is_there_one(tree, *each) for each in shared)

    def _whole(
        self,
        constraint: TopologyConstraint,
        tree: TopologyTree,
        demands: list[Demand],
        placed: list[PlacedMember],
    ) -> Iterator[Shared]:
        goal = make_goal(constraint, tree.layers)
        if not isinstance(goal, frozenset):
            yield goal.must, demands, placed

    def _sub_groups(
        self,
        constraint: TopologyConstraint,
        tree: TopologyTree,
        demands: list[Demand],
        placed: list[PlacedMember],
    ) -> Iterator[Shared]:
        groups = self._view.sub_groups_of(constraint.gang)
        if groups is None:
            return
        musts = constraint.layers_with(GatherStrategy.MUST)
        yield max((tree.index_of(name) or 0 for name in musts), default=0), demands, placed
        for group in groups.groups:
            layer = tree.index_of(group.layer) if group.layer else None
            inside = [demand for demand in demands if groups.is_in(demand.sub_group, group.name)]
            if layer and inside:
                own = [member for member in placed if groups.is_in(member.sub_group, group.name)]
                yield layer, inside, own

    def _is_there_one(
        self,
        tree: TopologyTree,
        layer: int,
        demands: Sequence[Demand],
        placed: Sequence[PlacedMember],
    ) -> bool:
        """Whether one domain of a layer may have room for what all the demands require."""
        fits = self._allowed(tree, layer, placed)
        if fits is None:
            return True
        together = Counter[PodShape]()
        for demand in demands:
            shapes, required = self._missing(demand)
            if required == shapes.total():
                together.update(shapes)
            elif required > 0:
                fits &= self._sum(tree, layer, shapes) >= required
        for shape, count in together.items():
            fits &= self._sum(tree, layer, {shape: count}) >= count
        return bool(fits.any())

    def _missing(self, demand: Demand) -> tuple[Counter[PodShape], int]:
        """Return the shapes of the pods that need nodes, and how many of them are required."""
        coming = [pod for pod in demand.pods if not (pod.pinned and pod.recorded)]
        shapes = Counter(map(self._cycle.shape_of, coming))
        return shapes, demand.required - (len(demand.pods) - len(coming))

    def _sum(self, tree: TopologyTree, layer: int, shapes: "dict[PodShape, int]") -> Ints:
        """Return, per domain, for how many pods of some shapes it may have room."""
        total: Ints = np.zeros(tree.size(layer), dtype=np.int64)
        for shape, count in shapes.items():
            room = self._room_in(tree, layer, shape)
            total += count if room is None else np.minimum(room, count)
        return total

    def _room_in(self, tree: TopologyTree, layer: int, shape: PodShape) -> Ints | None:
        key = id(tree), layer, shape
        if key not in self._sums:
            self._sums[key] = self._add_up(tree, layer, shape)
        return self._sums[key]

    def _add_up(self, tree: TopologyTree, layer: int, shape: PodShape) -> Ints | None:
        per_row = self._room_of(shape)
        if per_row is None:
            return None
        room = np.minimum(per_row[tree.rows], MOST)
        self._cycle.steps.take(len(room))
        sums: Ints = np.zeros(tree.size(layer), dtype=np.int64)
        np.add.at(sums, tree.domains_of(layer), room)
        return sums

    def _allowed(
        self, tree: TopologyTree, layer: int, placed: Iterable[PlacedMember]
    ) -> Mask | None:
        """Return the domains that may be shared; None if placed members do not share one."""
        row_of = self._cycle.table.row_of
        rows = {row_of[member.node] for member in placed if member.node in row_of}
        if not rows:
            return np.ones(tree.size(layer), dtype=np.bool_)
        if not all(row in tree for row in rows):
            return None
        own = np.unique(tree.domains_of(layer)[tree.positions_of(sorted(rows))])
        if len(own) > 1:
            return None
        allowed = np.zeros(tree.size(layer), dtype=np.bool_)
        allowed[own] = True
        return allowed
