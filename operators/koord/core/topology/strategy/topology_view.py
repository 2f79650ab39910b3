"""What planning knows of the network: the trees, what each gang asks of them, who is there already.

A view on what belongs to others; nothing is kept or decided here.
"""

from collections.abc import Iterator, Mapping

from koord.core.gang.cache import GangCache
from koord.core.gang.model import GangKey
from koord.core.gang.sub_group_tree import SubGroupTree
from koord.core.topology.cache import TopologyCache
from koord.core.topology.pod_attraction import PodAttraction
from koord.core.topology_constraint import PlacedMember, TopologyConstraint


class TopologyView:
    """Topologies, wishes of gangs and members that have their place, as of one moment."""

    def __init__(
        self, topologies: TopologyCache, attraction: PodAttraction, book: GangCache
    ) -> None:
        self.topologies = topologies
        self._attraction = attraction
        self._book = book

    def wish_of(self, gang: GangKey) -> TopologyConstraint | None:
        """Return what a gang asks of the network; None for nothing, and for no gang."""
        spec = self._book.spec(gang) if gang else None
        return None if spec is None else spec.topology

    def nest_of(self, gang: GangKey) -> SubGroupTree | None:
        """Return the sub-groups of a gang, if it has some."""
        spec = self._book.spec(gang) if gang else None
        return None if spec is None else spec.nest

    def siblings_of(self, gang: GangKey) -> Iterator[PlacedMember]:
        """Yield the members that have a node, of all gangs of the group with the same wish.

        Gangs with sub-groups gather by themselves.
        """
        wish, is_nested = self.wish_of(gang), self.nest_of(gang) is not None
        for one in self._book.group(gang).gangs:
            is_apart = one != gang and (is_nested or self.nest_of(one) is not None)
            if self.wish_of(one) != wish or is_apart:
                continue
            for pod in self._book.members(one).values():
                if not pod.is_alive or pod.is_plannable:
                    continue
                node = pod.node or (pod.recorded.node if pod.recorded is not None else "")
                if node:
                    yield PlacedMember(node, pod.index, pod.name, pod.sub_group)

    def attracting(self, selector: str) -> Mapping[str, int]:
        """Return node -> pods that draw pods with this selector to them."""
        return self._attraction.pods_by_node(selector) if selector else {}
