"""Topology spread that must hold: the domains of a node label get about equally many pods.

The rules are those of kube-scheduler's plugin PodTopologySpread:

* A node counts if it has the topology keys of *all* constraints of the pod, and passes the node
  inclusion policies of the one that is looked at: by default the pod's node affinity, not taints.
* A domain is a value of the key on some node that counts. The fullest a domain may get is the
  emptiest one plus ``maxSkew``; with fewer domains than ``minDomains`` that one counts as empty.
* Pods in the pod's own namespace count unless they are being deleted. An empty selector counts
  none. The pod itself counts if its constraint means it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from koord.core.constraints import SpreadConstraint
from koord.core.framework.arrays import NO_LIMIT, Ints, Mask
from koord.core.framework.cause import Cause
from koord.core.plugins.causes import NodeRefusal
from koord.core.plugins.pod_affinity import LabelDomains, PodAffinityState, selected_by
from koord.core.pods import PodShape


def spread_limits(shape: PodShape, state: PodAffinityState) -> Iterator[tuple[Cause, Ints]]:
    """Yield (cause, how many more such pods each row may take), two per constraint."""
    constraints = () if shape.constraints is None else shape.constraints.spread
    for constraint in constraints:
        known = state.domains(constraint.topology_key).is_known
        yield NodeRefusal.SPREAD_LABEL, np.where(known, NO_LIMIT, 0)
        yield NodeRefusal.SPREAD, _limits(shape, constraint, constraints, state)


def counting_rows(
    constraint: SpreadConstraint,
    constraints: tuple[SpreadConstraint, ...],
    shape: PodShape,
    state: PodAffinityState,
) -> Mask:
    """Return the rows whose pods count for a constraint, the pod's constraints being as given."""

    def find() -> Mask:
        table = state.table
        rows = table.is_live.copy()
        for other in constraints:
            rows &= state.domains(other.topology_key).is_known
        if constraint.honors_affinity and (shape.node_selector or shape.terms is not None):
            rows &= table.labels.selected_rows(shape.node_selector, shape.terms)
        if constraint.honors_taints:
            rows &= table.labels.tolerated_rows(shape.tolerations)
        return rows

    return state.remember((shape.spec, constraint), find)


def matching_pods(constraint: SpreadConstraint, state: PodAffinityState) -> Ints:
    """Count, per row, the pods that a constraint means."""
    counts = state.count((constraint.pods,), alive_only=True)
    return counts if constraint.pods.selector else np.zeros_like(counts)


def _limits(
    shape: PodShape,
    constraint: SpreadConstraint,
    constraints: tuple[SpreadConstraint, ...],
    state: PodAffinityState,
) -> Ints:
    """Return how many pods each row may take if all of them went there.

    As long as a domain is not above the emptiest other one, each pod raises the minimum with it.
    From there on ``maxSkew`` more may come.
    """
    tally = _count(shape, constraint, constraints, state)
    lowest, of_the_others = _minima(tally.totals, tally.present, constraint.min_domains)
    is_self = constraint.pods in selected_by(shape)
    if is_self and constraint.pods.selector:
        limits = np.clip(constraint.max_skew + of_the_others - tally.totals, 0, NO_LIMIT)
    else:
        limits = np.where(tally.totals + is_self - lowest <= constraint.max_skew, NO_LIMIT, 0)
    limits[0] = 0
    return tally.domains.of_rows(limits)


@dataclass(frozen=True, slots=True)
class _Tally:
    """Pods per domain, and which domains are present."""

    domains: LabelDomains
    totals: Ints
    present: Ints


def _count(
    shape: PodShape,
    constraint: SpreadConstraint,
    constraints: tuple[SpreadConstraint, ...],
    state: PodAffinityState,
) -> _Tally:
    domains = state.domains(constraint.topology_key)
    counting = counting_rows(constraint, constraints, shape, state)
    totals = domains.total(np.where(counting, matching_pods(constraint, state), 0))
    present = np.flatnonzero(domains.total(counting.astype(np.int64)))
    return _Tally(domains, totals, present)


@dataclass(frozen=True, slots=True)
class Skew:
    """The numbers of one constraint: pods in the domain of each row, and in the emptiest one.

    ``present`` is how many domains there are; ``is_self`` says that the pod counts, too.
    """

    totals: Ints
    lowest: int
    present: int
    is_self: bool


def count_skew(shape: PodShape, constraint: SpreadConstraint, state: PodAffinityState) -> Skew:
    """Return the numbers behind one of the constraints that must hold for a pod."""
    constraints = () if shape.constraints is None else shape.constraints.spread
    tally = _count(shape, constraint, constraints, state)
    lowest, _ = _minima(tally.totals, tally.present, constraint.min_domains)
    return Skew(
        totals=tally.domains.of_rows(tally.totals),
        lowest=lowest,
        present=int(tally.present.size),
        is_self=constraint.pods in selected_by(shape),
    )


def _minima(totals: Ints, present: Ints, min_domains: int) -> tuple[int, Ints]:
    """Return the least total of all present domains, and for each domain that of the others."""
    if present.size < max(min_domains, 1):
        return 0, np.zeros_like(totals)
    values = totals[present]
    at = int(values.argmin())
    lowest = int(values[at])
    others = np.full_like(totals, lowest)
    values[at] = NO_LIMIT
    others[present[at]] = values.min()
    return lowest, others
