"""Topology spread constraints: the domains of a node label get about equally many pods.

The rules are those of kube-scheduler's plugin PodTopologySpread:

* A node counts if it has the topology keys of *all* constraints of the pod, and passes the node
  inclusion policies of the evaluated one: by default the pod's node affinity, not taints.
* A domain is a value of the key on a node that counts. A domain may have ``maxSkew`` pods more than
  the emptiest one; with fewer domains than ``minDomains`` the emptiest one counts as having none.
* Pods in the pod's own namespace count unless they are being deleted. An empty selector counts
  none. The pod itself counts if its constraint selects it.
* Constraints with ``ScheduleAnyway`` only score nodes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from koord.core.engine.arrays import HOSTNAME, NO_LIMIT, Ints, Mask
from koord.core.engine.cause import Cause
from koord.core.engine.plugin import Score
from koord.core.engine.scoring import MAX_SCORE
from koord.core.model.constraints import SpreadConstraint
from koord.core.model.pods import PodShape
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.pod_affinity import LabelDomains, PodAffinityState, selected_by

SPREAD_WEIGHT: Final = 2
"""kube-scheduler's default weight; the score of resources weighs 1."""
_ONE: Final = 1 << 20
"""Logarithms are rounded to multiples of 1/``_ONE``, so that all comparisons are of integers."""


def spread_limits(shape: PodShape, state: PodAffinityState) -> Iterator[tuple[Cause, Ints]]:
    """Yield (cause, limits per row), two per constraint."""
    constraints = () if shape.constraints is None else shape.constraints.spread
    for constraint in constraints:
        has_domain = state.domains(constraint.topology_key).is_known
        yield NodeCause.SPREAD_LABEL, np.where(has_domain, NO_LIMIT, 0)
        yield NodeCause.SPREAD, _limits(shape, constraint, constraints, state)


def counting_rows(
    constraint: SpreadConstraint,
    constraints: tuple[SpreadConstraint, ...],
    shape: PodShape,
    state: PodAffinityState,
) -> Mask:
    """Return the rows whose pods count for one of the constraints of a pod."""

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
    """Count, per row, the pods that a constraint selects."""
    counts = state.count((constraint.pods,), alive_only=True)
    return counts if constraint.pods.selector else np.zeros_like(counts)


def _limits(
    shape: PodShape,
    constraint: SpreadConstraint,
    constraints: tuple[SpreadConstraint, ...],
    state: PodAffinityState,
) -> Ints:
    """Return how many pods fit on each row if all of them go there.

    Pods in the emptiest domain raise the minimum until it reaches the next emptiest one; after
    that ``maxSkew`` more pods fit.
    """
    state.steps.spend(len(state.table.nodes), 8)
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
    """Pods per domain, and the domains that have nodes."""

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
    """Pods in the domain of each row (``totals``) and in the emptiest one (``lowest``).

    ``present`` is the number of domains; ``is_self``: the constraint selects the pod itself.
    """

    totals: Ints
    lowest: int
    present: int
    is_self: bool


def count_skew(shape: PodShape, constraint: SpreadConstraint, state: PodAffinityState) -> Skew:
    """Return the numbers of one required constraint of a pod."""
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
    """Return the lowest total of the present domains, and per domain that of the others."""
    if present.size < max(min_domains, 1):
        return 0, np.zeros_like(totals)
    values = totals[present]
    at = int(values.argmin())
    lowest = int(values[at])
    of_others = np.full_like(totals, lowest)
    values[at] = NO_LIMIT
    of_others[present[at]] = values.min()
    return lowest, of_others


def score_spread(shape: PodShape, state: PodAffinityState, rows: Ints) -> Iterator[Score]:
    """Score feasible rows by the constraints that may be violated."""
    constraints = shape.constraints
    if constraints is not None and constraints.even:
        yield Score(_score_evenness(shape, constraints.even, state, rows), SPREAD_WEIGHT)


def _score_evenness(
    shape: PodShape, constraints: tuple[SpreadConstraint, ...], state: PodAffinityState, rows: Ints
) -> Ints:
    """Score rows with few pods in their domains high; rows without one of the keys get 0."""
    scored = np.ones(rows.size, dtype=np.bool_)
    for constraint in constraints:
        scored &= state.domains(constraint.topology_key).is_known[rows]
    if not scored.any():
        return np.zeros(rows.size, dtype=np.int64)
    among = rows[scored]
    density = np.zeros(among.size, dtype=np.int64)
    for constraint in constraints:
        density += _density_of(shape, constraint, constraints, state, among)
    density = (density + _ONE // 2) // _ONE
    least, most = int(density.min()), int(density.max())
    scores = np.zeros(rows.size, dtype=np.int64)
    scores[scored] = (most + least - density) * MAX_SCORE // most if most else MAX_SCORE
    return scores


def _density_of(
    shape: PodShape,
    constraint: SpreadConstraint,
    constraints: tuple[SpreadConstraint, ...],
    state: PodAffinityState,
    among: Ints,
) -> Ints:
    """Return the weighted number of pods in the domain of each row, times ``_ONE``.

    The weight grows with the number of domains, so that a few zones do not outweigh many hosts.
    """
    domains = state.domains(constraint.topology_key)
    pods = matching_pods(constraint, state)
    if constraint.topology_key == HOSTNAME:
        here, size = pods[among], among.size
    else:
        counting: Mask = counting_rows(constraint, constraints, shape, state)
        here = domains.of_rows(domains.total(np.where(counting, pods, 0)))[among]
        size = np.unique(domains.of_row[among]).size
    return here * _log(size + 2) + (constraint.max_skew - 1) * _ONE


@lru_cache(maxsize=1024)
def _log(number: int) -> int:
    return round(math.log(number) * _ONE)
