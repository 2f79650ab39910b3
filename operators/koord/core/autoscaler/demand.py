"""Which of the units that wait need new nodes, and which of their pods autoscalers are told of.

Nodes that are bought for a gang that does not start are bought for nothing. So a unit is told only
if room on nodes is all that it lacks: its quota admits it beside those that are told before it, and
a node like one that there is, or that may come, could hold each of its required members. It is told
with all of these or not at all; its surplus follows those of all others. Nodes that have come and
are not ready are waited for: who fits there is not told of, or more nodes would be bought. Reads a
cycle and takes back what it changes there; knows no API and no clock.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from koord.core.autoscaler.nodes import could_hold, tolerates_new
from koord.core.autoscaler.options import AutoscalerOptions
from koord.core.autoscaler.plugin import NAME, StartingNode
from koord.core.engine.arrays import Ints
from koord.core.engine.cycle import Cycle
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.refused_units import Blocked
from koord.core.model.nodes import Taint
from koord.core.model.plan import Unit, UnitKey, Unplaced
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.quota.reasons import InsufficientEntitlement
from koord.core.topology.reasons import NoDomainFits
from koord.isolation import Isolation

_HOSTNAME: Final = "kubernetes.io/hostname"
_GATED: Final = frozenset({Handling.RELEASE_AND_BIND, Handling.RELEASE_PINNED})


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """A unit that needs new nodes: its pods that wait for them, the required ones first.

    It ``is_served`` if enough nodes are starting for it: no more are needed.
    """

    unit: UnitKey
    pods: tuple[Pod, ...]
    required: int
    is_served: bool = False


class DemandFinder:
    """Finds demands in one cycle."""

    def __init__(
        self,
        cycle: Cycle,
        options: AutoscalerOptions,
        starting: Iterable[StartingNode] = (),
        isolated: Isolation | None = None,
    ) -> None:
        self._cycle, self._options = cycle, options
        self._isolated = isolated or Isolation("scale-up")
        self._starting = list(starting)
        self._could: dict[PodShape, bool] = {}
        self._trees: set[str] = set()
        """Quotas whose nodes are too few, for a unit that is told."""

    def find(self, blocked: Iterable[Blocked]) -> list[NodeDemand]:
        """Return the demands of units in the order of their turns, ``max_pods`` pods at most."""
        mark = self._cycle.checkpoint()
        try:
            return self._share_out(self._admit(blocked))
        finally:
            self._cycle.rollback(mark)

    def _share_out(self, admitted: Iterable[tuple[Unit, bool]]) -> list[NodeDemand]:
        left, chosen, served = self._options.max_pods, [], []
        for unit, is_served in admitted:
            if is_served:
                served.append(unit)
                continue
            required = _required_of(unit)
            if len(required) <= left:
                left -= len(required)
                chosen.append((unit, required))
            if not left:
                break
        demands = []
        for unit, required in chosen:
            surplus = (self._isolated.call(unit.key, self._find_surplus, unit, required) or [])[
                :left
            ]
            left -= len(surplus)
            demands.append(NodeDemand(unit.key, (*required, *surplus), len(required)))
        demands += (NodeDemand(u.key, u.pods, u.required, is_served=True) for u in served)
        return [demand for demand in demands if demand.pods]

    def _admit(self, blocked: Iterable[Blocked]) -> Iterator[tuple[Unit, bool]]:
        """Yield the units that lack nodes alone, without surplus that their quota refuses.

        With each goes whether enough nodes are starting for it.
        """
        for blocked_unit in blocked:
            mark = self._cycle.checkpoint()
            admitted = self._isolated.call(blocked_unit.unit.key, self._admit_one, blocked_unit)
            if admitted is None:
                self._cycle.rollback(mark)
            else:
                yield admitted

    def _admit_one(self, blocked: Blocked) -> tuple[Unit, bool] | None:
        unit = blocked.unit
        if not all(map(_may_be_told, unit.pods)) or not self._lacks_nodes(unit, blocked.reason):
            return None
        if not all(map(self.could_hold, _required_of(unit))):
            return None
        admitted = self._charge(unit, blocked.reason)
        return None if admitted is None else (admitted, self._is_served(admitted, blocked.reason))

    def _find_surplus(self, unit: Unit, required: Iterable[Pod]) -> list[Pod]:
        """Return the pods of a unit that may come later, as far as nodes could hold them."""
        there = {pod.uid for pod in required}
        return [pod for pod in unit.pods if pod.uid not in there and self.could_hold(pod)]

    def _is_served(self, unit: Unit, reason: Reason) -> bool:
        """Whether enough nodes are starting for all that a unit lacks; takes them for it then."""
        if not isinstance(reason, InsufficientNodes) or not self._starting:
            return False
        pods = _required_of(unit) or list(unit.pods)
        # Those that fit now are not known by name: the largest are taken for those that do not.
        pods.sort(key=lambda pod: sorted(n for _, n in pod.shape.requests), reverse=True)
        left = list(self._starting)
        for pod in pods[: max(reason.want - reason.fit, 1)]:
            at = next((i for i, s in enumerate(left) if s.is_awaited_by(pod.shape)), None)
            if at is None:
                return False
            left[at] = left[at].without(pod.shape)
        self._starting = left
        return True

    def _lacks_nodes(self, unit: Unit, reason: Reason) -> bool:
        match reason:
            case InsufficientNodes():
                return True
            case NoDomainFits():
                return self._options.marks_topology or not self._has_room_apart(unit)
            case InsufficientEntitlement():
                # Its share is all that there is: it grows with the nodes.
                return all(shortage.offered is not None for shortage in reason.shortages)
            case _:
                return False

    def _has_room_apart(self, unit: Unit) -> bool:
        """Whether its required members would have room without their rules about the network."""
        by_shape: dict[PodShape, int] = {}
        for pod in _required_of(unit):
            shape = self._cycle.shape_of(pod)
            by_shape[shape] = by_shape.get(shape, 0) + 1
        return all(int(self._cycle.room(shape).sum()) >= n for shape, n in by_shape.items())

    def _charge(self, unit: Unit, reason: Reason) -> Unit | None:
        """Charge a unit as if it started; None if it may not, beside those before it."""
        if isinstance(reason, InsufficientEntitlement):
            is_first = reason.quota not in self._trees
            self._trees.add(reason.quota)
            return unit if is_first else None
        if self._cycle.not_now(unit) is not None:
            return None
        mark = self._cycle.checkpoint()
        for session in self._cycle.pre_filtering:
            admission = session.pre_filter(unit)
            if isinstance(admission, Unplaced):
                self._cycle.rollback(mark)
                return None
            unit = admission.unit
        return unit

    def could_hold(self, pod: Pod) -> bool:
        """Whether one more node like one that there is could hold a pod."""
        could = self._could.get(pod.shape)
        if could is None:
            could = self._could[pod.shape] = self._find_alike(pod.shape)
        return could

    def _find_alike(self, shape: PodShape) -> bool:
        if any(could_hold(node, shape) for node in self._options.kinds):
            return True
        is_named = shape.terms is not None and all(term.fields for term in shape.terms)
        if is_named or _HOSTNAME in dict(shape.node_selector):
            return False  # a new node has another name
        table = self._cycle.table
        vector = table.vector(shape)
        amounts = np.array(vector.amounts, dtype=np.int64)[:, np.newaxis]
        is_large = (table.allocatable[list(vector.columns)] >= amounts).all(axis=0)
        _, _, is_selected = table.labels.check(shape)
        kinds, of_row = self._taints
        present = np.bincount(of_row[table.is_live & is_large & is_selected])
        return any(tolerates_new(shape, kinds[int(at)]) for at in np.flatnonzero(present))

    @cached_property
    def _taints(self) -> tuple[list[tuple[Taint, ...]], Ints]:
        """The sets of taints that nodes have, and row -> which of them its node has.

        There may be as many shapes of pods as a tenant likes, and nodes have few sets of taints.
        """
        kinds: dict[tuple[Taint, ...], int] = {}
        nodes = self._cycle.table.nodes
        of_row = [kinds.setdefault(node.taints if node else (), len(kinds)) for node in nodes]
        return list(kinds), np.array(of_row, dtype=np.int64)


def _required_of(unit: Unit) -> list[Pod]:
    """Return the pods without which a unit does not start, or all of one that has started."""
    if not unit.required:
        return []
    return [pod for demand in unit.demands for pod in demand.first_required()]


def _may_be_told(pod: Pod) -> bool:
    """Whether autoscalers may be told of a pod: it is one, has our gate, and no node in view.

    They add no nodes for a pod that says by which request these were asked for.
    """
    is_waiting = pod.handling in _GATED and pod.is_gated and pod.nominated is None
    return is_waiting and all(name != NAME for name, _ in pod.extensions)
