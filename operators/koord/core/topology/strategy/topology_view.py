"""What planning reads of the network: topology trees, constraints of gangs, members and other pods.

A view of data that others keep; decides nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from koord.core.engine.state_view import GangView
from koord.core.model.gangs import GangKey, GangSpec, SubGroupTree
from koord.core.model.topology_constraint import GatherStrategy, PlacedMember, TopologyConstraint
from koord.core.topology.cache import TopologyCache

ATTRACTED: Final = TopologyConstraint(())
"""The constraint of pods without one that other pods attract: near those, if there is room."""
_NO_NODES: Mapping[str, int] = {}


class PodAttraction:
    """Selector -> node -> pods that attract pods with the same selector.

    Source: Koordinator's annotation ``network-topology-selector``. Has a single writer.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Counter[str]] = {}
        self._pods: dict[str, tuple[str, str]] = {}

    def note(self, uid: str, selector: str, node: str) -> None:
        """Store the node and the selector of a pod; either may be empty."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count(*before, -1)
        if selector and node:
            self._pods[uid] = (selector, node)
            self._count(selector, node, 1)

    def pods_by_node(self, selector: str) -> Mapping[str, int]:
        """Return node -> pods with that selector; do not write to it."""
        return self._nodes.get(selector, _NO_NODES)

    def _count(self, selector: str, node: str, sign: int) -> None:
        nodes = self._nodes.setdefault(selector, Counter())
        nodes[node] += sign
        if not nodes[node]:
            del nodes[node]
        if not nodes:
            del self._nodes[selector]


class TopologyView:
    """Topologies, constraints of gangs and their members on nodes, at one moment."""

    def __init__(
        self, topologies: TopologyCache, attraction: PodAttraction, gangs: GangView
    ) -> None:
        self.topologies = topologies
        self._attraction = attraction
        self._gangs = gangs

    def spec_of(self, gang: GangKey) -> GangSpec | None:
        return self._gangs.spec(gang) if gang else None

    def constraint_of(self, gang: GangKey) -> TopologyConstraint | None:
        spec = self.spec_of(gang)
        return None if spec is None else spec.topology

    def required_constraint_of(self, gang: GangKey) -> TopologyConstraint | None:
        """Return the constraint of a gang; None also if it is only preferred and has no tree.

        That of a gang with sub-groups is its own.
        """
        spec = self.spec_of(gang)
        if spec is None:
            return None
        constraint, sub_groups = spec.topology, spec.sub_groups
        must_share = False
        if sub_groups is not None:
            constraint = replace(constraint or ATTRACTED, gang=gang)
            must_share = any(group.layer for group in sub_groups.groups)
        if constraint is None or must_share or constraint.layers_with(GatherStrategy.MUST):
            return constraint
        has_tree = self.topologies.tree(constraint.topology) is not None
        return constraint if has_tree else None

    def sub_groups_of(self, gang: GangKey) -> SubGroupTree | None:
        spec = self.spec_of(gang)
        return None if spec is None else spec.sub_groups

    def placed_with(self, gang: GangKey) -> Iterator[GangKey]:
        """Yield the gangs in the group with the same constraint, itself included.

        A gang with sub-groups shares its domains with no other gang.
        """
        constraint = self.constraint_of(gang)
        has_sub_groups = self.sub_groups_of(gang) is not None
        for name in self._gangs.group(gang).gangs:
            is_apart = name != gang and (has_sub_groups or self.sub_groups_of(name) is not None)
            if self.constraint_of(name) == constraint and not is_apart:
                yield name

    def placed_members_of(self, gang: GangKey) -> Iterator[PlacedMember]:
        """Yield the members with a node of all gangs that are placed with a gang."""
        for name in self.placed_with(gang):
            for pod in self._gangs.members(name).values():
                if pod.is_alive and not pod.is_plannable and (node := pod.planned_node):
                    yield PlacedMember(node, pod.index, pod.name, pod.sub_group)

    def attracting_pods(self, selector: str) -> Mapping[str, int]:
        """Return node -> pods that attract pods with this selector."""
        return self._attraction.pods_by_node(selector) if selector else _NO_NODES
