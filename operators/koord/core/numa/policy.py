"""NUMA policies: which NUMA nodes of a machine a pod may use.

Every requested resource gives hints: sets of NUMA nodes that could serve it. A policy merges them
into one set for the whole pod, or refuses the node. How hints come about is not known
here. Sources: the kubelet's topology manager, and Koordinator's, which adds scores and exclusive
use.

A set of NUMA nodes is an integer with one bit per node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import ClassVar, Final

from koord.core.engine.cause import Cause
from koord.core.model.zone_hints import Hints, NumaHint, NumaNodes

_RANK: Final = 60
"""After the other requests of a pod, which may explain more."""
POLICY_MISMATCH: Final = Cause(
    "NUMAPolicyMismatch",
    _RANK,
    "node(s) NUMA Topology policy not match",
    "Give the pod the NUMA policy of {nodes}, or none.",
)
NO_NUMA_NODES: Final = Cause(
    "NUMAInfoMissing",
    _RANK + 1,
    "node(s) missing NUMA resources",
    "Report the NUMA nodes of {nodes} in a NodeResourceTopology.",
)
UNALIGNED: Final = Cause(
    "NUMAUnaligned",
    _RANK + 8,
    "{detail}",
    "Free room on the same NUMA nodes of {nodes}, or use the policy BestEffort.",
    by_detail=True,
)


class NumaPolicy(StrEnum):
    """How strictly the resources of a pod must be on the same NUMA nodes."""

    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"

    @property
    def may_refuse(self) -> bool:
        """Whether nodes are filtered by it; otherwise it only guides the choice on a node."""
        return self is not NumaPolicy.BEST_EFFORT


class NumaExclusive(StrEnum):
    """Whether pods on one NUMA node and pods that span several have to keep apart."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"


@dataclass(frozen=True, slots=True)
class PolicyCause:
    """The policy of a pod cannot be applied on a node; no room that is freed would help."""

    cause: Cause
    node: NumaPolicy | None
    pod: NumaPolicy | None

    is_resolvable: ClassVar = False

    def describe(self) -> str:
        """Return the message of Koordinator."""
        return self.cause.describe()


def choose_policy(
    pod: NumaPolicy | None,
    *,
    label: NumaPolicy | None,
    kubelet: NumaPolicy | None,
    all_nodes: NumaNodes,
) -> NumaPolicy | PolicyCause | None:
    """Return the policy for a pod on a node that has ``all_nodes`` NUMA node; None: there is none.

    A label of the node overrides the policy of its kubelet.
    """
    node = label or kubelet
    if node and pod and node is not pod:
        return PolicyCause(POLICY_MISMATCH, node, pod)
    if (node or pod) and not all_nodes:
        return PolicyCause(NO_NUMA_NODES, node, pod)
    return node or pod


def choose_exclusive(pod: NumaPolicy | None, written: NumaExclusive | None) -> NumaExclusive:
    """Return whether a pod keeps apart: as written, else if it names a policy itself."""
    return written or (NumaExclusive.REQUIRED if pod else NumaExclusive.PREFERRED)


@dataclass(frozen=True, slots=True)
class NumaConflict:
    """NUMA nodes that a pod cannot use because it keeps apart from the pods there.

    ``is_shared``: those pods span NUMA nodes; otherwise each of them is on one.
    """

    nodes: NumaNodes
    is_shared: bool

    def describe(self) -> str:
        state = "shared" if self.is_shared else "single"
        numbers = (number for number in range(self.nodes.bit_length()) if self.nodes >> number & 1)
        which = ", ".join(f"NUMA node {number} is {state}" for number in numbers)
        return f"{which} (singleNUMANodeExclusive: Required)"


@dataclass(frozen=True, slots=True)
class NumaOccupancy:
    """NUMA nodes with pinned pods: all of them on one node only (single), or not (shared)."""

    single: NumaNodes = 0
    shared: NumaNodes = 0

    def conflict(self, exclusive: NumaExclusive, nodes: NumaNodes) -> NumaConflict | None:
        """Return what keeps a pod from using a set of nodes, all of them."""
        if exclusive is NumaExclusive.PREFERRED:
            return None
        is_shared = nodes.bit_count() == 1
        conflicting = nodes & (self.shared if is_shared else self.single)
        return NumaConflict(conflicting, is_shared) if conflicting else None


NOT_OCCUPIED: Final = NumaOccupancy()


def find_occupancy(pods: Iterable[NumaNodes]) -> NumaOccupancy:
    """Return the occupancy from the NUMA nodes that the CPUs of each pinned pod belong to."""
    single = shared = 0
    for nodes in pods:
        if nodes.bit_count() == 1:
            single |= nodes
        else:
            shared |= nodes
    return NumaOccupancy(single & ~shared, shared)


_ANYWHERE: Final = (NumaHint(None, is_preferred=True),)
_NOWHERE: Final = (NumaHint(None, is_preferred=False, is_unsatisfied=True),)


@dataclass(frozen=True, slots=True)
class ResourceSets:
    """The sets of NUMA nodes that the hints of one resource name."""

    resource: str
    preferred: tuple[NumaNodes | None, ...]
    possible: tuple[NumaNodes | None, ...]

    def describe(self) -> str:
        preferred, possible = (
            " ".join("<nil>" if nodes is None else f"{nodes:02b}" for nodes in sets)
            for sets in (self.preferred, self.possible)
        )
        return f"{self.resource} prefer [{preferred}] among [{possible}]"


@dataclass(frozen=True, slots=True)
class Unaligned:
    """The resources of a pod cannot be on the same NUMA nodes as its policy demands.

    ``unsatisfied`` resources fit nowhere; if there are none, the ``sets`` have none in common, or
    there is a ``conflict`` with other pods.
    """

    policy: NumaPolicy
    unsatisfied: tuple[str, ...] = ()
    sets: tuple[ResourceSets, ...] = ()
    conflict: NumaConflict | None = None

    cause: ClassVar = UNALIGNED
    is_resolvable: ClassVar = True

    def messages(self) -> tuple[str, ...]:
        """Return the messages of Koordinator."""
        if self.unsatisfied:
            return tuple(f"Unsatisfied NUMA {resource}" for resource in self.unsatisfied)
        separator = "," if self.policy is NumaPolicy.SINGLE_NUMA_NODE else " & "
        sets = separator.join(resource_sets.describe() for resource_sets in self.sets)
        return (f"Unaligned NUMA Hint cause {sets}",)

    def describe(self) -> str:
        """Return the messages, and the conflict that they do not mention."""
        conflict = [self.conflict.describe()] if self.conflict else []
        return "; ".join([*self.messages(), *conflict])


@dataclass(frozen=True, slots=True)
class Alignment:
    """What a policy makes of the hints; the pod is admitted unless there is a ``cause``."""

    hint: NumaHint
    cause: Unaligned | None = None


def align(
    policy: NumaPolicy,
    all_nodes: NumaNodes,
    hints: Sequence[tuple[str, Hints]],
    exclusive: NumaExclusive = NumaExclusive.PREFERRED,
    occupancy: NumaOccupancy = NOT_OCCUPIED,
) -> Alignment:
    """Merge the hints of the requested resources and apply the policy."""
    choices = [_choices(policy, resource_hints) for _, resource_hints in hints]
    best = merge_hints(all_nodes, choices, lambda nodes: not occupancy.conflict(exclusive, nodes))
    if policy is NumaPolicy.BEST_EFFORT:
        return Alignment(NumaHint(all_nodes, is_preferred=False) if best.is_unsatisfied else best)
    if policy is NumaPolicy.SINGLE_NUMA_NODE and best.nodes == all_nodes:
        best = replace(best, nodes=None)
    if best.is_preferred:
        return Alignment(best)
    wanted = merge_hints(all_nodes, choices) if exclusive is NumaExclusive.REQUIRED else best
    unaligned = Unaligned(
        policy,
        unsatisfied=tuple(
            sorted(
                name
                for name, resource_hints in hints
                if resource_hints is not None and not resource_hints
            )
        ),
        sets=tuple(
            _make_sets(name, resource_hints)
            for name, resource_hints in sorted(hints, key=itemgetter(0))
            if resource_hints
        ),
        conflict=occupancy.conflict(exclusive, wanted.nodes or 0) if wanted.is_preferred else None,
    )
    return Alignment(best, unaligned)


def _choices(policy: NumaPolicy, hints: Hints) -> Sequence[NumaHint]:
    choices = _ANYWHERE if hints is None else hints or _NOWHERE
    if policy is not NumaPolicy.SINGLE_NUMA_NODE:
        return choices
    return [
        hint
        for hint in choices
        if hint.is_preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)
    ]


def _make_sets(resource: str, hints: Sequence[NumaHint]) -> ResourceSets:
    possible = [hint for hint in hints if not hint.is_unsatisfied]
    preferred = (hint.nodes for hint in possible if hint.is_preferred)
    return ResourceSets(resource, tuple(preferred), tuple(hint.nodes for hint in possible))


def merge_hints(
    all_nodes: NumaNodes,
    choices: Sequence[Sequence[NumaHint]],
    is_allowed: Callable[[NumaNodes], bool] = lambda _: True,
) -> NumaHint:
    """Choose one hint per resource so that their common NUMA nodes are the best.

    Preferred comes first, then fewer nodes, a higher score, lower numbers. Common nodes are
    preferred if every hint names exactly them and prefers them, and they are allowed; they are
    unsatisfied if any hint needs more nodes. Without common nodes the answer is every node, not
    preferred.

    Combinations of hints are too many to be tried, sets are not. Among combinations with the same
    common nodes, those are best whose hints name exactly them.
    """
    tables = [{hint.nodes: hint for hint in hints} for hints in choices]
    named = {all_nodes, *(nodes for table in tables for nodes in table if nodes)}
    merged_hints = [
        hint
        for nodes in named
        if (hint := _merge_to(nodes, tables)).is_preferred and is_allowed(nodes)
    ]
    if not merged_hints:
        common = frozenset({all_nodes})
        for table in tables:
            common = _meet(common, frozenset(table))
        merged = (replace(_merge_to(nodes, tables), is_preferred=False) for nodes in common)
        merged_hints = [NumaHint(all_nodes, is_preferred=False), *merged]
    return min(merged_hints, key=_order)


def _merge_to(nodes: NumaNodes, tables: Sequence[Mapping[NumaNodes | None, NumaHint]]) -> NumaHint:
    exact = [hint for table in tables if (hint := table.get(nodes) or table.get(None))]
    is_exact = len(exact) == len(tables)
    return NumaHint(
        nodes,
        is_preferred=is_exact and all(hint.is_preferred for hint in exact),
        score=sum(hint.score for hint in exact if hint.nodes is not None),
        is_unsatisfied=not is_exact or any(hint.is_unsatisfied for hint in exact),
    )


@lru_cache(maxsize=1024)  # the sets of equal machines are equal
def _meet(common: frozenset[NumaNodes], sets: frozenset[NumaNodes | None]) -> frozenset[NumaNodes]:
    wide = {-1 if nodes is None else nodes for nodes in sets}
    return frozenset(both for nodes in common for hinted in wide if (both := nodes & hinted))


def _order(hint: NumaHint) -> tuple[int, int, NumaNodes]:
    nodes = hint.nodes or 0
    return nodes.bit_count(), -hint.score, nodes
