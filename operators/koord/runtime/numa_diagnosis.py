"""What Koordinator's diagnosis API says of the CPUs and NUMA nodes of one node, in its form.

Changes nothing. Numbers of cores, NUMA nodes and sockets are those that the
node reports.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from koord.core.engine.state import ClusterState
from koord.core.model.units import CPU, Amounts, format_amount
from koord.core.numa.cpu_topology import CpuExclusive, Cpus, CpuTopology, format_cpuset
from koord.core.numa.cpus import MILLI
from koord.core.numa.model import NumaAllocation, NumaReport
from koord.core.numa.plugin import Numa
from koord.core.numa.states import NumaState

_EMPTY: Final = NumaReport("")
_OPTIONS: Final = (
    "cpuTopology",
    "reservedCPUs",
    "maxRefCount",
    "policy",
    "numaTopologyPolicy",
    "numaNodeResources",
    "amplificationRatios",
)
"""What version 0.7 answered, of what it answers since."""


def describe_numa_options(state: ClusterState, name: str) -> dict[str, Any]:
    """Return what the oldest form of the API has of a node."""
    described = describe_numa(state, name)
    return {option: described[option] for option in _OPTIONS}


def describe_numa(state: ClusterState, name: str) -> dict[str, Any]:
    """Return CPUs and NUMA nodes of a node that exists, and what its pods have of them."""
    plugin, row = state.plugin(Numa), state.table.row_of[name]
    node, report = state.table.node_at(row), plugin.reports.get(name, _EMPTY)
    used, topology = plugin.use_on(row), report.cpus
    layout = used.layout
    pool, policy, cost = layout.pool, layout.label or layout.kubelet, layout.cost
    return {
        "name": name,
        "cpuTopology": None if topology is None else _describe_topology(topology, used),
        "reservedCPUs": format_cpuset(node.reserved | report.reserved),
        "maxRefCount": None if pool is None else pool.max_refs,
        "policy": None,
        "numaTopologyPolicy": "" if policy is None else str(policy),
        "numaNodeResources": _list_zones(layout.zones),
        "amplificationRatios": {CPU: cost / MILLI} if cost != MILLI else None,
        "remainingNUMANodeResources": _list_zones(
            (zone.number, zone.available.items()) for zone in used.zones
        ),
        "allocatedNUMANodeResources": _list_zones(sorted(used.used.items())),
        "availableCPUs": "" if pool is None else format_cpuset(used.pinnable(pool)),
        "allocatedCPUs": format_cpuset(used.cpus.counts.at_least(1)),
        "allocatedPods": list(_list_pods(state, plugin, row)),
    }


def _describe_topology(topology: CpuTopology, used: NumaState) -> dict[str, Any]:
    places = zip(topology.cores, topology.core_places, topology.core_numbers, strict=True)
    cpus: dict[int, dict[str, Any]] = {}
    for core, (socket, numa), number in places:
        for cpu in _numbers_in(core):
            cpus[cpu] = {
                "cpuID": cpu,
                "coreID": number,
                "nodeID": topology.numa_nodes[numa].number,
                "socketID": topology.sockets[socket].number,
                "refCount": used.cpus.counts.total(1 << cpu),
                "exclusivePolicy": _exclusive_of(used, 1 << cpu),
            }
    return {
        "numCPUs": topology.cpus.bit_count(),
        "numCores": len(topology.cores),
        "numNodes": len(topology.numa_nodes),
        "numSockets": len(topology.sockets),
        "cpuDetails": {str(cpu): detail for cpu, detail in sorted(cpus.items())},
    }


def _numbers_in(cpus: Cpus) -> Iterator[int]:
    while cpus:
        yield (cpus & -cpus).bit_length() - 1
        cpus &= cpus - 1


def _exclusive_of(used: NumaState, cpu: Cpus) -> str:
    """Return the policy under which a CPU is held; empty for none."""
    if used.cpus.by_core.at_least(1) & cpu:
        return CpuExclusive.PCPU_LEVEL
    return CpuExclusive.NUMA_NODE_LEVEL if used.cpus.by_numa.at_least(1) & cpu else ""


def _list_zones(zones: Iterable[tuple[int, Iterable[tuple[str, int]]]]) -> list[dict[str, Any]]:
    return [{"node": number, "resources": _quantities(dict(part))} for number, part in zones]


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {key: format_amount(key, amount) for key, amount in sorted(amounts.items())}


def _list_pods(state: ClusterState, plugin: Numa, row: int) -> Iterator[dict[str, Any]]:
    given = ((uid, plugin.given_to(uid)) for uid in sorted(plugin.allocations.on_row(row)))
    for uid, allocation in given:
        pod = state.pods.get(uid)
        if pod is not None and allocation is not None:
            yield {
                "uid": uid,
                "namespace": pod.namespace,
                "name": pod.name,
                **_describe_allocation(allocation),
            }


def _describe_allocation(allocation: NumaAllocation) -> dict[str, Any]:
    return {
        "cpuset": format_cpuset(allocation.cpus),
        "cpuExclusivePolicy": allocation.exclusive or "",
        "numaNodeResources": _list_zones(
            (share.number, share.amounts) for share in allocation.shares
        ),
    }
