"""What every node says to a pod: how many fit, and what refuses it, in detail.

The other pod, the skew or the claim behind a cause; and which nodes are closed by one thing only.
Used by ``koord explain``. Filters only count pods; this module searches the pods of the cluster for
the names.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from koord.core.engine.arrays import Mask
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.labels import is_tolerated
from koord.core.engine.node_table import NodeTable
from koord.core.engine.plugin import Session
from koord.core.engine.reasons import Closed
from koord.core.model.constraints import AffinityTerm, PodConstraints, PodSelector, SpreadConstraint
from koord.core.model.nodes import Node, Taint
from koord.core.model.pods import Pod, PodShape
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.inter_pod import InterPodSession
from koord.core.plugins.node_rules import untolerated_taints
from koord.core.plugins.pod_affinity import PodAffinityState
from koord.core.plugins.topology_spread import count_skew
from koord.core.plugins.volumes import VolumeCache, VolumesSession, constraints_of, is_in_zones


@dataclass(slots=True)
class NodeDiagnosis:
    """What every node says to equal pods.

    ``list_others`` returns the pods on nodes, with their rows; few causes are about them.
    """

    cycle: Cycle
    pods: tuple[Pod, ...]
    shape: PodShape
    list_others: Callable[[], Sequence[tuple[Pod, int]]] = tuple
    checks: list[tuple[Cause, str, Mask]] = field(init=False)
    _explaining: list[Session] = field(init=False)
    _first_by_value: dict[tuple[tuple[AffinityTerm, ...], str], dict[str, str]] = field(
        init=False, default_factory=dict
    )
    _excluding: dict[str, dict[str, str]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.checks = self.cycle.checks(self.shape)
        default = Session.explain
        sessions = self.cycle.sessions
        self._explaining = [each for each in sessions if type(each).explain is not default]

    @property
    def subject(self) -> Pod:
        return self.pods[0]

    def describe(self, cause: Cause | None, row: int) -> str:
        """Return the detail of a cause; empty if it has none."""
        if cause is None:
            return ""
        make = _DESCRIBERS.get(cause)
        if make is not None:
            return next(make(self, row), "")
        texts = (session.explain(cause, self.shape, row) for session in self._explaining)
        return next(filter(None, texts), "")

    def taint(self, row: int) -> Iterator[str]:
        """Yield untolerated taints."""
        yield from untolerated_taints(self.cycle.table.node_at(row), self.shape)

    def missing_label(self, row: int) -> Iterator[str]:
        """Yield topology keys of spread constraints that the node has no label for."""
        for constraint in self._spread:
            if not self._value_at(constraint.topology_key, row):
                yield f"no label {constraint.topology_key}"

    def skew(self, row: int) -> Iterator[str]:
        """Yield spread constraints that one more pod would violate, with the numbers."""
        for constraint in self._spread:
            skew = count_skew(self.shape, constraint, self._state)
            here = int(skew.totals[row])
            if here + skew.is_self - skew.lowest > constraint.max_skew:
                where = self._domain(constraint.topology_key, row)
                least = f"{skew.lowest} in the emptiest"
                if skew.present < constraint.min_domains:
                    least = f"{skew.present} of {constraint.min_domains} domains (minDomains)"
                limit = f"maxSkew {constraint.max_skew}"
                yield f"{where} has {here} of {_name(constraint.pods)}, {least}, {limit}"

    def missing_pods(self, row: int) -> Iterator[str]:
        """Yield affinity terms without a matching pod in the domain."""
        terms = self._constraints.affinity
        for term in terms:
            if not self._value_at(term.topology_key, row):
                yield f"no label {term.topology_key}"
            elif self._value_at(term.topology_key, row) not in self._first_pods(
                terms, term.topology_key
            ):
                selectors = " and ".join(dict.fromkeys(_name(term.pods) for term in terms))
                yield f"{self._domain(term.topology_key, row)} has none of {selectors}"

    def anti_affinity_pods(self, row: int) -> Iterator[str]:
        """Yield pods in the domain that the anti-affinity of the subject excludes."""
        for term in self._constraints.anti_affinity:
            value = self._value_at(term.topology_key, row)
            name = self._first_pods((term,), term.topology_key).get(value) if value else None
            if name is not None:
                yield f"{name} on {self._domain(term.topology_key, row)}"

    def excluding_pods(self, row: int) -> Iterator[str]:
        """Yield pods in the domain whose anti-affinity excludes the subject."""
        if self._excluding is None:
            self._excluding = self._find_excluding()
        for key, first in self._excluding.items():
            name = first.get(self._value_at(key, row))
            if name is not None:
                yield f"{name} on {self._domain(key, row)}"

    def volume(self, row: int) -> Iterator[str]:
        """Yield claims whose volume is not available on the node."""
        labels = self.cycle.table.labels
        for claim, volume in self._volumes.bound(self.subject):
            if volume.terms is not None and not labels.rows_of_any(volume.terms)[row]:
                yield f"{volume.name} of {claim.key}"

    def volume_zone(self, row: int) -> Iterator[str]:
        """Yield claims whose volume is in another zone."""
        for claim, volume in self._volumes.bound(self.subject):
            if volume.zones and not is_in_zones(volume.zones, self.cycle.table.labels)[row]:
                zones = {value for _, values in volume.zones for value in values}
                yield f"{volume.name} of {claim.key} is in {', '.join(sorted(zones))}"

    def volume_user(self, _row: int) -> Iterator[str]:
        """Yield pods that use an exclusive claim of the subject."""
        volumes = constraints_of(self.shape)
        exclusive = () if volumes is None else volumes.exclusive
        for pod, _ in self.list_others():
            for use in pod.claims:
                if use.key in exclusive:
                    yield f"{use.key} by {pod.key}"

    @property
    def _state(self) -> PodAffinityState:
        return self.cycle.session(InterPodSession).state

    @property
    def _volumes(self) -> VolumeCache:
        return self.cycle.session(VolumesSession).cache

    @property
    def _constraints(self) -> PodConstraints:
        return self.shape.constraints or _NO_CONSTRAINTS

    @property
    def _spread(self) -> tuple[SpreadConstraint, ...]:
        return self._constraints.spread

    def _value_at(self, key: str, row: int) -> str:
        return self.cycle.table.node_at(row).labels.get(key, "")

    def _domain(self, key: str, row: int) -> str:
        return f"{key}={self._value_at(key, row)}"

    def _find_excluding(self) -> dict[str, dict[str, str]]:
        """Return topology key -> label value -> the first pod there that excludes the subject."""
        excluding: dict[str, dict[str, str]] = {}
        for pod, at in self.list_others():
            constraints = pod.shape.constraints
            for term in () if constraints is None else constraints.anti_affinity:
                value = self._value_at(term.topology_key, at)
                if value and self._state.selects(term.pods, self.subject.profile):
                    excluding.setdefault(term.topology_key, {}).setdefault(value, pod.key)
        return excluding

    def _first_pods(self, terms: tuple[AffinityTerm, ...], key: str) -> Mapping[str, str]:
        """Return label value -> the first pod there that all terms select."""
        first_by_value = self._first_by_value.get((terms, key))
        if first_by_value is None:
            selects = self._state.selects
            first_by_value = self._first_by_value[terms, key] = {}
            for pod, at in self.list_others():
                if all(selects(term.pods, pod.profile) for term in terms):
                    first_by_value.setdefault(self._value_at(key, at), pod.key)
        return first_by_value


_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
_NO_CONSTRAINTS: Final = PodConstraints()

_DESCRIBERS: Final[dict[Cause, Callable[[NodeDiagnosis, int], Iterator[str]]]] = {
    NodeCause.TAINT: NodeDiagnosis.taint,
    NodeCause.VOLUME_IN_USE: NodeDiagnosis.volume_user,
    NodeCause.VOLUME_AFFINITY: NodeDiagnosis.volume,
    NodeCause.VOLUME_ZONE: NodeDiagnosis.volume_zone,
    NodeCause.SPREAD_LABEL: NodeDiagnosis.missing_label,
    NodeCause.SPREAD: NodeDiagnosis.skew,
    NodeCause.POD_AFFINITY: NodeDiagnosis.missing_pods,
    NodeCause.POD_ANTI_AFFINITY: NodeDiagnosis.anti_affinity_pods,
    NodeCause.EXISTING_ANTI_AFFINITY: NodeDiagnosis.excluding_pods,
}


def _name(pods: PodSelector) -> str:
    """Format a selector as kubectl does."""
    if not pods.selector:
        return "no pods" if pods.selector is None else "all pods"
    return ",".join(map(_write, pods.selector))


def _write(requirement: Requirement) -> str:
    match requirement.operator:
        case SelectorOperator.IN if len(requirement.values) == 1:
            return f"{requirement.key}={requirement.values[0]}"
        case SelectorOperator.EXISTS:
            return requirement.key
        case SelectorOperator.DOES_NOT_EXIST:
            return f"!{requirement.key}"
        case SelectorOperator.IN:
            return f"{requirement.key} in ({','.join(requirement.values)})"
        case _:
            return f"{requirement.key} notin ({','.join(requirement.values)})"


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """How many pods of one shape fit on a node, or why none does.

    ``short`` holds (resource, requested, free) for every insufficient resource.
    """

    node: str
    pods: int
    cause: Cause | None
    detail: str
    short: tuple[tuple[str, int, int], ...]


def offers(diagnosis: NodeDiagnosis) -> list[NodeOffer]:
    """Return the offers of all nodes for a pod, sorted by name."""
    cycle, shape = diagnosis.cycle, diagnosis.shape
    room = cycle.room(shape).tolist()
    causes, short = _find_first_causes(diagnosis), _find_short(cycle, shape)
    return [
        NodeOffer(
            name,
            room[row],
            causes.get(row),
            diagnosis.describe(causes.get(row), row),
            tuple(short.get(row, ())),
        )
        for name, row in cycle.table.live_rows()
    ]


def _find_first_causes(diagnosis: NodeDiagnosis) -> dict[int, Cause]:
    """Return the first check that a row fails, of rows that fail one."""
    causes: dict[int, Cause] = {}
    for cause, _, passed in reversed(diagnosis.checks):
        causes |= dict.fromkeys(np.flatnonzero(~passed).tolist(), cause)
    return causes


def rank_offer(offer: NodeOffer) -> tuple[float | str, ...]:
    """Return by what nodes are sorted: most room first, then what is nearest to fitting."""
    is_closed = offer.cause not in {None, NodeCause.RESOURCE}
    lacking = sum((requested - max(free, 0)) / requested for _, requested, free in offer.short)
    return (-offer.pods, is_closed + len(offer.short), lacking, offer.cause or "", offer.node)


def _find_short(cycle: Cycle, shape: PodShape) -> dict[int, list[tuple[str, int, int]]]:
    """Return row -> what it has too little of: resource, requested, free."""
    requests = dict(shape.requests)
    short: dict[int, list[tuple[str, int, int]]] = {}
    for name, column, amount in cycle.vector(shape).items():  # of what no node has, it is 1
        free = cycle.table.allocatable[column] - cycle.used[column]
        rows = np.flatnonzero(free < amount)
        for row, left in zip(rows.tolist(), free[rows].tolist(), strict=True):
            short.setdefault(row, []).append((name, requests[name], max(left, 0)))
    return short


def find_closed(diagnosis: NodeDiagnosis) -> tuple[Closed, ...]:
    """Find nodes that would take such a pod but for one thing, the largest group first."""
    table, shape = diagnosis.cycle.table, diagnosis.shape
    failing = [(cause, ~passed) for cause, _, passed in diagnosis.checks]
    _count_cordon_once(failing, table, shape)
    is_near = table.is_live & (np.sum([rows for _, rows in failing], axis=0) == 1)
    closed_nodes: dict[tuple[Cause, str], list[str]] = defaultdict(list)
    for cause, rows in failing:
        if cause is NodeCause.RESOURCE:
            continue
        for row in np.flatnonzero(rows & is_near):
            node = table.node_at(int(row))
            taints = _untolerated(node, shape) if cause is NodeCause.TAINT else ()
            detail = " ".join(f"{{{taint.key}: {taint.value}}}" for taint in taints)
            closed_nodes[cause, detail].append(node.name)
    closed = (Closed(*key, tuple(sorted(nodes))) for key, nodes in closed_nodes.items())
    return tuple(
        sorted(closed, key=lambda closed: (-len(closed.nodes), closed.cause, closed.detail))
    )


def _count_cordon_once(
    failing: Sequence[tuple[Cause, Mask]], table: NodeTable, shape: PodShape
) -> None:
    """Cordoning also taints: take a taint that goes with uncordoning for no cause of its own."""
    masks = dict(failing)
    cordoned = masks.get(NodeCause.UNSCHEDULABLE)
    tainted = masks.get(NodeCause.TAINT)
    if cordoned is None or tainted is None:
        return
    for row in np.flatnonzero(cordoned & tainted):
        node = table.node_at(int(row)) if table.is_live[row] else None
        if node and all(taint.key == _CORDON_TAINT for taint in _untolerated(node, shape)):
            tainted[row] = False


def _untolerated(node: Node, shape: PodShape) -> list[Taint]:
    return [
        taint
        for taint in node.taints
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, shape.tolerations)
    ]
