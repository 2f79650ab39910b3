"""The formulas of batch and mid resources, of one node and one resource, term by term.

Percentages of capacity are cut to whole units as floating point numbers, as Koordinator cuts them:
71 percent of 100 CPUs leave 28,999 thousandths, not 29,000. With ``compat`` all is as there;
otherwise pods without metrics count their requests in every policy, the policy ``request`` is for
CPU, too, and mid resources never lead a node to where pods are evicted.
Source: Koordinator (batchresource, midresource).
"""

from collections.abc import Mapping
from typing import Final

from koord.core.colocation.measured import (
    ColocatedNode,
    HighPriorityUse,
    find_reserved,
    find_system_use,
)
from koord.core.colocation.strategy import CalculatePolicy, ResourceStrategy, Strategy
from koord.core.colocation.terms import AmountTermKind, Breakdown, TermSum
from koord.core.model.koordinator_class import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koord.core.model.units import CPU, MEMORY

BATCH: Final[Mapping[str, str]] = {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY}
MID: Final[Mapping[str, str]] = {CPU: MID_CPU, MEMORY: MID_MEMORY}
PUBLISHED: Final = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
EVICTION_PERCENT: Final = 70
"""Use of a node, in percent, from which on node agents evict pods of class batch by default."""


def percent_of(amount: int, percent: int) -> int:
    """Return a percentage, cut to whole units."""
    return int(amount * (percent / 100))


def compute_batch(
    resource: str,
    node: ColocatedNode,
    pods: HighPriorityUse,
    strategy: Strategy,
    *,
    compat: bool = False,
) -> Breakdown:
    """Return what a node offers to batch pods."""
    of, capacity = strategy.of(resource), node.capacity.get(resource, 0)
    total = TermSum(AmountTermKind.CAPACITY, capacity)
    total.add(AmountTermKind.MARGIN, -percent_of(capacity, 100 - of.reclaim))
    if _uses_requests(resource, of, compat=compat):
        total.add(AmountTermKind.RESERVED, -find_reserved(node, resource))
        total.add(AmountTermKind.REQUESTED, -pods.requested)
    else:
        system = find_system_use(node, resource, for_mid=False)
        total.add(AmountTermKind.SYSTEM, -system.measured)
        total.add(AmountTermKind.HOST_APPLICATIONS, -system.host_applications)
        total.add(AmountTermKind.RESERVED, -system.reserved_beyond)
        _subtract_pods(total, pods, of.policy, compat=compat)
    total.at_least_zero()
    if of.batch_most is not None:
        total.at_most(AmountTermKind.LIMIT, percent_of(capacity, of.batch_most))
    if resource == CPU and node.faster > 100:
        total.add(AmountTermKind.NORMALIZATION, total.value * (node.faster - 100) // 100)
    taken = node.third_party.get(BATCH[resource], 0)
    total.add(AmountTermKind.THIRD_PARTY, -min(taken, total.value))
    return total.make(BATCH[resource])


def _uses_requests(resource: str, of: ResourceStrategy, *, compat: bool) -> bool:
    """Whether requests alone count; Koordinator takes the use of CPUs then."""
    return of.policy is CalculatePolicy.REQUEST and not (compat and resource == CPU)


def _subtract_pods(
    total: TermSum, pods: HighPriorityUse, policy: CalculatePolicy, *, compat: bool
) -> None:
    if policy is CalculatePolicy.MAX_USAGE_REQUEST:
        total.add(AmountTermKind.PEAK, -pods.peak)
        total.add(AmountTermKind.UNMEASURED, 0 if compat else -pods.unmeasured)
    else:
        total.add(AmountTermKind.USED, -pods.used)
        beyond = 0 if compat else pods.exclusive_beyond
        total.add(AmountTermKind.EXCLUSIVE, -pods.exclusive - beyond)
        total.add(AmountTermKind.UNMEASURED, -pods.unmeasured)
    total.add(AmountTermKind.DANGLING, -pods.dangling)


def compute_mid(
    resource: str,
    node: ColocatedNode,
    pods: HighPriorityUse,
    strategy: Strategy,
    *,
    compat: bool = False,
) -> Breakdown:
    """Return what a node offers to mid pods.

    A static part is a promise: nothing that is used takes it back.
    """
    of, capacity = strategy.of(resource), node.capacity.get(resource, 0)
    most = percent_of(capacity, of.mid_most)
    if strategy.is_mid_static:
        total = TermSum(AmountTermKind.STATIC_PART, percent_of(capacity, of.mid_static))
        total.at_most(AmountTermKind.LIMIT, most)
        return total.make(MID[resource])
    report = node.report
    is_known = report is not None and resource in report.usage
    used = report.usage.get(resource, 0) if report is not None else 0
    reclaimable = report.reclaimable.get(resource, 0) if report is not None else 0
    unused = capacity - used if is_known else 0
    total = TermSum(AmountTermKind.RECLAIMABLE, reclaimable)
    total.at_most(AmountTermKind.IN_USE, max(0, unused))
    system = find_system_use(node, resource, for_mid=True)
    unallocated = max(0, capacity - system.total - pods.prod_requested)
    total.add(AmountTermKind.UNALLOCATED, percent_of(unallocated, strategy.mid_unallocated_percent))
    total.at_most(AmountTermKind.LIMIT, most)
    if is_known and not compat:
        room = percent_of(capacity, EVICTION_PERCENT) - used
        total.at_most(AmountTermKind.PRESSURE, max(0, room))
    return total.make(MID[resource])
