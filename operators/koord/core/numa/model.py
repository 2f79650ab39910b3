"""Values of NUMA: what a pod says, what a node has, what a pod was given.

All values are immutable and compare by content, so that nodes with equal hardware share one layout.
Which NUMA nodes and CPUs a pod gets is decided elsewhere.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from koord.core.engine.scoring import ScoringStrategy
from koord.core.model.amplification import NOT_AMPLIFIED, ONCE, Amplification
from koord.core.model.nodes import Node
from koord.core.model.pods import Allocation, AnnotationWrite, Pod
from koord.core.model.processor import Processor
from koord.core.model.units import CPU, MEMORY, format_amount
from koord.core.model.zone_hints import NumaNodes
from koord.core.numa.cpu_topology import CpuExclusive, Cpus, CpuTopology, format_cpuset
from koord.core.numa.cpus import MILLI, CpuBind, CpuPool
from koord.core.numa.policy import NumaExclusive, NumaPolicy
from koord.core.numa.zones import NumaShare

NAME: Final = "numa"
"""The name of the plugin, under which pods carry what they say to it."""
STATUS: Final = "scheduling.koordinator.sh/resource-status"
POLICY_LABEL: Final = "node.koordinator.sh/numa-topology-policy"
BIND_LABEL: Final = "node.koordinator.sh/cpu-bind-policy"
STRATEGY_LABEL: Final = "node.koordinator.sh/numa-allocate-strategy"

Part: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by resource, in the order of names."""

_POLICIES: Final[Mapping[str, NumaPolicy]] = {
    numa_policy.value: numa_policy for numa_policy in NumaPolicy
}
_BINDS: Final[Mapping[str, CpuBind]] = {
    "FullPCPUsOnly": CpuBind.FULL_PCPUS,
    "SpreadByPCPUs": CpuBind.SPREAD_BY_PCPUS,
}


@dataclass(frozen=True, slots=True)
class NumaAllocationHints:
    """What the annotations and labels of a pod say about NUMA nodes and CPUs.

    ``problems`` are annotations that cannot be read: field and what is wrong.
    """

    policy: NumaPolicy | None = None
    exclusive: NumaExclusive | None = None
    is_pinned: bool = False
    required: CpuBind | None = None
    preferred: CpuBind = CpuBind.DEFAULT
    cpu_exclusive: CpuExclusive | None = None
    problems: tuple[tuple[str, str], ...] = ()


NO_ALLOCATION_HINTS: Final = NumaAllocationHints()


@dataclass(frozen=True, slots=True)
class NumaReport:
    """What is reported of a node: amounts by NUMA node, places of CPUs, policies of its kubelet.

    ``reserved`` CPUs are the system's; ``pinned`` are the CPUs that the kubelet gave to pods (uid).
    ``problems`` is what cannot be read: field and what is wrong.
    """

    node: str
    zones: tuple[tuple[int, Part], ...] = ()
    cpus: CpuTopology | None = None
    policy: NumaPolicy | None = None
    bind: CpuBind | None = None
    reserved: Cpus = 0
    pinned: tuple[tuple[str, Cpus], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    is_amplified: bool = False
    """Whether ``zones`` are as they are offered: the report has ratios of its own."""
    processor: Processor | None = None


@dataclass(frozen=True)
class NumaLayout:
    """What a node has and demands; amounts of ``zones`` without what the system reserves.

    ``label`` is the policy that the label of the node names, ``kubelet`` that of its kubelet.
    """

    zones: tuple[tuple[int, Part], ...] = ()
    pool: CpuPool | None = None
    label: NumaPolicy | None = None
    kubelet: NumaPolicy | None = None
    bind: CpuBind | None = None
    cost: int = MILLI
    """Of a pinned CPU, in milli-CPU; more where CPUs are amplified, as those of ``zones`` are."""
    is_cost_known: bool = True
    """Whether the ratios of the node can be read; where they cannot, nothing is pinned."""

    @property
    def cpus(self) -> CpuTopology | None:
        return self.pool.topology if self.pool is not None else None

    @property
    def all_nodes(self) -> NumaNodes:
        return sum(1 << number for number, _ in self.zones)

    @property
    def demands(self) -> bool:
        """Whether pods are aligned or pinned here that do not ask for it."""
        return bool(self.label or self.kubelet or self.bind)


def make_layout(report: NumaReport | None, node: Node) -> NumaLayout:
    """Return the layout of a node from its report and its own labels."""
    labels = node.labels
    label = _POLICIES.get(labels.get(POLICY_LABEL, ""))
    bind = _BINDS.get(labels.get(BIND_LABEL, ""))
    if report is None:
        return NumaLayout(label=label, bind=bind)
    reserved, ratios = node.reserved | report.reserved, node.amplification
    packs = labels.get(STRATEGY_LABEL) == ScoringStrategy.MOST_ALLOCATED
    strategy = ScoringStrategy.MOST_ALLOCATED if packs else ScoringStrategy.LEAST_ALLOCATED
    cpus, of_zones = report.cpus, NOT_AMPLIFIED if report.is_amplified else ratios
    return NumaLayout(
        tuple(
            (number, _offer(part, _taken(cpus, number, reserved), ratios, of_zones))
            for number, part in report.zones
        ),
        CpuPool(cpus, cpus.cpus & ~reserved, strategy) if cpus is not None else None,
        label,
        report.policy,
        bind or report.bind,
        ratios.cpu,
        is_cost_known=not ratios.problem,
    )


def _taken(cpus: CpuTopology | None, number: int, reserved: Cpus) -> int:
    """Return the milli-CPU that the system has of a NUMA node."""
    return (cpus.cpus_in(1 << number) & reserved).bit_count() * MILLI if cpus is not None else 0


def _offer(part: Part, taken: int, ratios: Amplification, of_zones: Amplification) -> Part:
    """Return what a NUMA node offers to pods, rounded down.

    ``of_zones``: what ``part`` is still to be multiplied by. What is ``taken`` always is.
    """
    factors = {CPU: of_zones.cpu, MEMORY: of_zones.memory}
    reserved = {CPU: taken * ratios.cpu}
    return tuple(
        (key, max(0, amount * factors.get(key, ONCE) - reserved.get(key, 0)) // ONCE)
        for key, amount in part
    )


@dataclass(frozen=True, slots=True)
class NumaAllocation:
    """The NUMA nodes and CPUs of one pod (uid): shares by NUMA node, and pinned CPUs.

    ``exclusive`` is what the pod asks for; the annotation does not repeat it. ``lost`` are the
    milli-CPU of a pod whose annotation was changed: which CPUs it has is unknown.
    ``users``: of a hold, what other pods use.
    """

    pod: str
    cpus: Cpus = 0
    shares: tuple[NumaShare, ...] = ()
    exclusive: CpuExclusive | None = None
    lost: int = 0
    users: tuple["NumaAllocation", ...] = ()

    def shared_with(self, used: Iterable[Allocation]) -> "NumaAllocation":
        """Return it with what other pods use of it, or besides it."""
        return replace(
            self,
            users=tuple(
                allocation for allocation in used if isinstance(allocation, NumaAllocation)
            ),
        )

    def writes(self) -> Iterable[AnnotationWrite]:
        if not self.lost:
            yield AnnotationWrite(self.pod, STATUS, self._encode(), is_record=True)

    def amounts(self, layout: NumaLayout) -> Iterator[tuple[int, Part]]:
        """Yield what it uses, or may use, of each NUMA node; pinned CPUs by their cost there."""
        if self.lost:
            yield from ((number, ((CPU, self.lost),)) for number, _ in layout.zones)
            return
        pinned = self.cpus if layout.cpus is not None else 0
        for share in self.shares:
            yield (
                share.number,
                tuple(amount for amount in share.amounts if not pinned or amount[0] != CPU),
            )
        for group in layout.cpus.numa_nodes if layout.cpus is not None else ():
            if count := (group.cpus & pinned).bit_count():
                yield group.number, ((CPU, count * layout.cost),)

    def _encode(self) -> str:
        status: dict[str, object] = {}
        if self.cpus:
            status["cpuset"] = format_cpuset(self.cpus)
        if self.shares:
            status["numaNodeResources"] = [
                {
                    "node": share.number,
                    "resources": {key: format_amount(key, n) for key, n in share.amounts},
                }
                for share in self.shares
            ]
        return json.dumps(status, separators=(",", ":"))


def allocation_hints_of(pod: Pod) -> NumaAllocationHints:
    allocation_hints = next(
        (extension for name, extension in pod.extensions if name == NAME), NO_ALLOCATION_HINTS
    )
    return (
        allocation_hints
        if isinstance(allocation_hints, NumaAllocationHints)
        else NO_ALLOCATION_HINTS
    )


def find_own(allocations: Iterable[Allocation]) -> NumaAllocation | None:
    return next(
        (allocation for allocation in allocations if isinstance(allocation, NumaAllocation)), None
    )
